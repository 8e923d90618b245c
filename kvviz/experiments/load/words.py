"""What a load sweep has shown, in sentences, titles and a table: each figure is the document's."""

from collections.abc import Mapping, Sequence
from typing import Any

from kvviz.base.words import human, millis, two_digits
from kvviz.experiments.batching.words import mark
from kvviz.experiments.load.figures import FREE, decided, goodput, wait_s

Found = Mapping[str, Any]  # a document (docs/json.md)


def offered(rate: float) -> str:
    """A rate of arrival on every page."""
    return f"{rate:.3g} requests/s"


def best(found: Found, ttft_s: float, itl_s: float) -> tuple[Found, float] | None:
    """The rate with the highest goodput, and that; None if no request at any rate kept to the limits."""
    pairs = [(point, goodput(point, ttft_s, itl_s)) for point in found["rows"]]
    top = max(pairs, key=lambda pair: pair[1], default=None)
    return top if top and top[1] else None


def claim(found: Found, ttft_s: float, itl_s: float) -> str:
    """Say how many requests a second keep to two limits, and what becomes of them at the highest rate.

    Where the highest rate is the best, say how many are completed without limits instead.
    """
    most = max(found["rows"] or [found["at_once"]], key=lambda point: point["completed_per_s"])
    without = f"without limits {mark(most)}{two_digits(most['completed_per_s'])} are completed"
    top = best(found, ttft_s, itl_s)
    if top is None:
        return f"No request keeps to both limits at any rate; {without}"
    point, good = top
    level = decided(found["rows"]).level or 0
    sure = max((goodput(row, ttft_s, itl_s) for row in found["rows"] if row["rate"] <= level), default=0)
    most_good = f"{mark(point)}{two_digits(good)} requests a second keep to your limits"
    last = found["rows"][-1]
    beyond = without
    if (least := goodput(last, ttft_s, itl_s)) < good:
        beyond = f"with {two_digits(last['rate'])} offered, {mark(last)}{two_digits(least)} do"
    if point["rate"] <= level:
        return f"At most {most_good}, of {two_digits(point['rate'])} offered; {beyond}"
    queue = f"at {two_digits(point['rate'])} offered the queue {'grows' if point['unbounded'] else 'may grow'}"
    return f"{f'From {two_digits(sure)} to' if sure else 'At most'} {most_good}: {queue}; {beyond}"


def latency_claim(found: Found, name: str) -> str:
    """Say how a wait's p99 changes from the lowest rate to the highest: `name` is "ttft" or "itl"."""
    title = {"ttft": "First token", "itl": "A request's mean ITL"}[name]
    waits = [(point, wait) for point in found["rows"] if (wait := wait_s(point, name, 99)) is not None]
    if len(waits) < 2:
        return title
    (first, low), (last, high) = ((point, f"{mark(point)}{millis(wait)}") for point, wait in (waits[0], waits[-1]))
    return f"{title}, p99: {low} at {two_digits(first['rate'])}/s, {high} at {two_digits(last['rate'])}/s"


def steps_claim(found: Found) -> str:
    """Say up to how many sequences a decode step is free, and what the most of them cost."""
    steps = found["steps"]
    if len(steps) < 2:
        return "The time of a decode step"
    first, last, free = steps[0], steps[-1], found["free_up_to"]
    about = "≈ " if found["steps_clean"] is False else ""
    times = f"{about}{last['s'] / first['s']:.2g} times as long"
    said = f"A step of {_many(last['running'])} takes {times} as one of {first['running']}"
    tokens = f"{last['running'] / first['running']:.3g} times the tokens"
    return f"{said}, and makes {tokens}: decoding is free up to {free}{' at least' if free == last['running'] else ''}"


def _many(sequences: int) -> str:
    return f"{sequences} sequence{'' if sequences == 1 else 's'}"


def sentences(found: Found) -> list[str]:
    """What the sweep has shown: capacity, waits, where decoding stops being free, and how good the prediction was."""
    once = found["at_once"]
    said = [capacity(found), *_waits(found["rows"])]
    if once["predicted"]:
        error = once["predicted"]["completed_per_s"] / once["completed_per_s"] - 1
        said.append(
            f"**Predicted**: the cost model, which knows this engine's scheduler and this device's paces, has "
            f"{two_digits(once['predicted']['completed_per_s'])} requests/s completed where {mark(once)}"
            f"{two_digits(once['completed_per_s'])} were, {_off(error)}."
        )
    if len(found["steps"]) > 1:
        said.append(_free(found))
    if found["outweighs"]:
        said.append(_outweighs(found))
    return said


def capacity(found: Found) -> str:
    """Say up to where the queue stays level, from where on it grows, and how many were completed at once."""
    knee = decided(found["rows"])
    said = [f"stays level up to {two_digits(knee.level)} requests/s"] if knee.level else []
    if knee.growing:
        said.append(f"grows without bound from {two_digits(knee.growing)} requests/s on")
        if knee.level and knee.undecided:
            said[-1] += ": the knee lies between the two"
    elif knee.undecided:
        said.append(f"may grow at {two_digits(knee.undecided[1])} requests/s: these requests are too few to tell")
    completed = f"{mark(found['at_once'])}{two_digits(found['at_once']['completed_per_s'])}"
    once = f"all at once, {completed} a second were completed"
    short = f" The {found['spec']['seconds']} s were used up before the knee was found more closely."
    return f"**The queue** {'; it '.join(said)}; {once}.{short if found['short'] else ''}"


def _waits(rows: Sequence[Found]) -> list[str]:
    steady = [point for point in rows if not point["unbounded"]]
    if len(steady) < 2:
        return []
    first, last = steady[0], steady[-1]
    parts = [
        f"{name} of 99 in a hundred at most {mark(first)}{millis(first[field])}, then {mark(last)}{millis(last[field])}"
        for name, field in (("TTFT", "ttft_s_p99"), ("ITL", "itl_s_p99"))
        if first[field] is not None and last[field] is not None
    ]
    return [f"**Waiting**, from {offered(first['rate'])} to {offered(last['rate'])}: {'; '.join(parts)}."]


def _off(error: float) -> str:
    """How far a prediction is off, in words: (predicted - measured) / measured."""
    return "as measured" if abs(error) < 0.005 else f"{abs(error):.0%} too {'many' if error > 0 else 'few'}"


def step_error(found: Found) -> str:
    """How far the predicted step times are off, in the median; '' if there is no prediction."""
    error = found["steps_missed"]
    if error is None:
        return ""
    if abs(error) < 0.005:
        return "The cost model's steps take as long as those measured, in the median."
    way = "shorter" if error < 0 else "longer"
    return f"The cost model's steps are {abs(error):.0%} {way} than those measured, in the median."


def _free(found: Found) -> str:
    free, steps = found["free_up_to"], found["steps"]
    first = _many(steps[0]["running"])
    rule = f"a step takes at most {FREE:g} times as long as that of {first}"
    most = f"{_many(steps[-1]['running'])} take {millis(steps[-1]['s'])}, {first} {millis(steps[0]['s'])}"
    return f"**Decoding is free** up to {_many(free)}: {rule}. {most}. {step_error(found)}".rstrip()


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
