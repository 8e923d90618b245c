"""What a load sweep has shown, in sentences, titles and a table: each figure is the document's."""

from collections.abc import Mapping, Sequence
from typing import Any

from kvviz.base.words import human, millis, two_digits
from kvviz.experiments.batching.words import mark
from kvviz.experiments.comparison.figures import tail
from kvviz.experiments.load.figures import FREE, counts, decided, early, goodput, wait_s

Found = Mapping[str, Any]  # a document (docs/json.md)


def offered(rate: float) -> str:
    """A rate of arrival on every page."""
    return f"{exact(rate)} requests/s"


def exact(rate: float) -> str:
    """A rate of arrival alone: it is chosen, not counted, so it has a third digit."""
    return f"{float(f'{rate:.3g}'):,g}"


def best(found: Found, ttft_s: float, itl_s: float) -> tuple[Found, float] | None:
    """The rate with the highest goodput, and that; None if no request at any rate kept to the limits."""
    pairs = [(point, goodput(point, ttft_s, itl_s)) for point in found["rows"]]
    top = max(pairs, key=lambda pair: pair[1], default=None)
    return top if top and top[1] else None


def limit(found: Found) -> Found:
    """The rate at which most requests a second were completed: the one figure for what the engine can do."""
    return max(found["rows"] or [found["at_once"]], key=lambda point: point["completed_per_s"])


def claim(found: Found) -> str:
    """Say how many requests a second the engine completes, and what comes of more."""
    most = limit(found)
    figure = two_digits(most["completed_per_s"])
    if decided(found["rows"]).growing is None:
        return f"{mark(most) or 'About '}{figure} requests a second or more: no rate was surely too high"
    said = f"{mark(most) or 'About '}{figure} requests a second, then only the waiting grows"
    found_early = early(found["rows"])
    return f"{said}; the slowest wait longer already at {exact(found_early[1]['rate'])}" if found_early else said


def early_wait(found: Found) -> str:
    """Say how long the slowest wait where the queue stays level, if that is much longer than at the lowest rate."""
    points = early(found["rows"])
    if points is None:
        return ""
    low, high = (f"{mark(point)}{millis(wait_s(point, 'ttft', 99) or 0.0, 2)}" for point in points)
    rates, called = [exact(point["rate"]) for point in points], tail(*counts(points))
    return (
        f"**The slowest wait first**: at {rates[1]} requests a second the queue stays level, but the first token's "
        f"{called} is {high}, not {low} as at {rates[0]}."
    )


def within(found: Found, ttft_s: float, itl_s: float) -> str:
    """Say how many requests a second keep to two limits at the best rate, and at the highest."""
    limits = f"your limits (the first token within {millis(ttft_s)}, then at most {millis(itl_s)} between tokens)"
    top = best(found, ttft_s, itl_s)
    if top is None:
        return f"At no rate does a request keep to {limits}."
    (point, good), last = top, found["rows"][-1]
    rate = point["rate"]
    said = f"At most {mark(point)}{two_digits(good)} requests a second keep to {limits}, with {exact(rate)} offered"
    if rate > (decided(found["rows"]).level or 0):
        said += f", where the queue {'grows' if point['unbounded'] else 'may grow'}"
    if (least := goodput(last, ttft_s, itl_s)) < good:
        said += f"; with {exact(last['rate'])} offered, only {mark(last)}{two_digits(least)} do"
    return f"{said}."


def latency_claim(found: Found, name: str) -> str:
    """Say how a wait's p99, or the slowest, changes from the lowest rate to the highest: `name` is "ttft" or "itl"."""
    title = {"ttft": "TTFT", "itl": "A request's mean ITL"}[name]
    waits = [(point, wait) for point in found["rows"] if (wait := wait_s(point, name, 99)) is not None]
    if len(waits) < 2:
        return title
    (first, low), (last, high) = ((point, f"{mark(point)}{millis(wait, 2)}") for point, wait in (waits[0], waits[-1]))
    called = tail(*counts((first, last), name))
    return f"{title}, {called}: {low} at {exact(first['rate'])}/s, {high} at {exact(last['rate'])}/s"


def steps_claim(found: Found) -> str:
    """Say what a decode step of the most sequences takes and makes, beside that of the fewest."""
    steps = found["steps"]
    if len(steps) < 2:
        return "The time of a decode step"
    first, last = steps[0], steps[-1]
    about = "≈ " if found["steps_clean"] is False else ""
    times = f"{about}{last['s'] / first['s']:.2g} times as long"
    said = f"A step of {_many(last['running'])} takes {times} as one of {first['running']}"
    tokens = f"{last['running'] / first['running']:.3g} times the tokens"
    return f"{said}, and makes {tokens}"


def _many(sequences: int) -> str:
    return f"{sequences} sequence{'' if sequences == 1 else 's'}"


def sentences(found: Found) -> list[str]:
    """What the sweep has shown: capacity, waits, where decoding stops being free, and how good the prediction was."""
    most = limit(found)
    said = [capacity(found), *_waits(found["rows"])]
    if most["predicted"]:
        error = most["predicted"]["completed_per_s"] / most["completed_per_s"] - 1
        said.append(
            f"**Predicted**: the cost model, which knows this engine's scheduler and this device's paces, has "
            f"{two_digits(most['predicted']['completed_per_s'])} requests/s completed where {mark(most)}"
            f"{two_digits(most['completed_per_s'])} were, {_off(error)}."
        )
    if len(found["steps"]) > 1:
        said.append(_free(found))
    if found["outweighs"]:
        said.append(_outweighs(found))
    return said


def capacity(found: Found) -> str:
    """Say up to which offered rate the queue stays level, and from where on it grows."""
    knee = decided(found["rows"])
    said = [f"stays level up to {exact(knee.level)} requests a second"] if knee.level else []
    if knee.growing:
        said.append(f"grows throughout the run from {exact(knee.growing)} on")
        if knee.level and knee.undecided:
            said[-1] += "; at the rates between, the knee, these requests are too few to tell with 95% confidence"
    elif knee.undecided:
        said.append(f"may grow at {exact(knee.undecided[1])}: these requests are too few to tell")
    short = f" The {found['spec']['seconds']} s were used up before the knee was found more closely."
    return f"**The queue** {' and '.join(said)}.{short if found['short'] else ''}"


def _waits(rows: Sequence[Found]) -> list[str]:
    steady = [point for point in rows if not point["unbounded"]]
    if len(steady) < 2:
        return []
    first, last = steady[0], steady[-1]
    parts = [
        f"{name} of {_whom(name, first, last)} at most {mark(first)}{millis(first[field])}, "
        f"then {mark(last)}{millis(last[field])}"
        for name, field in (("TTFT", "ttft_s_p99"), ("ITL", "itl_s_p99"))
        if first[field] is not None and last[field] is not None
    ]
    return [f"**Waiting**, from {offered(first['rate'])} to {offered(last['rate'])}: {'; '.join(parts)}."]


def _off(error: float) -> str:
    """How far a prediction is off, in words: (predicted - measured) / measured."""
    return "as measured" if abs(error) < 0.005 else f"{abs(error):.0%} too {'many' if error > 0 else 'few'}"


def step_error(found: Found) -> str:
    """How far the predicted step times are off: in the median, and from least to most; '' without a prediction."""
    error = found["steps_missed"]
    if error is None:
        return ""
    known = [row for row in found["steps"] if row.get("predicted_s")]
    ends = sorted((row["predicted_s"] / row["s"] - 1, int(row["running"])) for row in known)
    said = f"The cost model's steps are {_way(error)} those measured, in the median"
    if len(ends) < 2:
        return f"{said}."
    (low, at_low), (high, at_high) = ends[0], ends[-1]
    return f"{said}: from {_way(low)} measured for {_many(at_low)} to {_way(high)} measured for {_many(at_high)}."


def _way(error: float) -> str:
    if abs(error) < 0.005:
        return "as long as"
    return f"{abs(error):.0%} {'shorter' if error < 0 else 'longer'} than"


def _free(found: Found) -> str:
    free, steps = found["free_up_to"], found["steps"]
    first = _many(steps[0]["running"])
    rule = f"a step takes at most {FREE:g} times as long as that of {first}"
    most = f"{_many(steps[-1]['running'])} take {millis(steps[-1]['s'])}, {first} {millis(steps[0]['s'])}"
    return f"**Decoding is free** up to {_many(free)}: {rule}. {most}. {step_error(found)}".rstrip()


def _whom(name: str, *points: Found) -> str:
    """Say how many wait no longer than the figure: all where too few requests have a TTFT for a p99, else 99 in 100."""
    return "99 in a hundred" if name == "ITL" or tail(*counts(points)) == "p99" else "all"


def _outweighs(found: Found) -> str:
    heavy = found["outweighs"]
    sizes = f"{human(heavy['weight_bytes'])} of weights, {human(heavy['cache_bytes'])} of each cache"
    at = f"at a context of {heavy['tokens']:,} tokens, the mean of these requests"
    if heavy["batch"] is None:
        return f"**Bytes**: {at}, a step reads more weights than caches, whatever the batch ({sizes})."
    return f"**Bytes**: {at}, a step of {_many(heavy['batch'])} or more reads more of caches than of weights ({sizes})."


def text(found: Found) -> str:
    """Format a load sweep for a terminal."""
    names = ("ttft_s_p50", "ttft_s_p99", "itl_s_p50", "itl_s_p99")
    heads = " ".join(f"{head:>10}" for head in ("TTFT p50", "p99", "ITL p50", "p99", "predicted"))
    lines = [f"{'offered/s':>10} {'completed':>10} {heads}"]
    for row in [*found["rows"], found["at_once"]]:
        times = " ".join(f"{'-' if row[name] is None else millis(row[name]):>10}" for name in names)
        foretold = f"{row['predicted']['completed_per_s']:.3g}" if row["predicted"] else "-"
        beside = ("  the queue grows" if row.get("unbounded") else "") + ("  ≈ beside other work" if mark(row) else "")
        rate = f"{row['rate']:.3g}" if row["rate"] else "all"
        lines.append(f"{rate:>10} {row['completed_per_s']:>10.3g} {times} {foretold:>10}{beside}")
    return "\n".join([*lines, "", *(sentence.replace("**", "") for sentence in found["sentences"])])
