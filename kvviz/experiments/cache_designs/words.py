"""Turns the result of a race of cache designs into table rows and sentences. Standard library only."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, quantiles
from typing import Any, TypedDict

from kvviz.base.words import aligned_millis, human, millis, small
from kvviz.models.sources import weights_in_words

KL_ROUNDING = 1e-9  # nats: a smaller divergence is rounding
NEAR_ROUNDING = 100 * KL_ROUNDING  # a smaller mean is written in one digit
PARTS = {"proof": "the tokens", "books": "the memory", "clock": "the clock", "text": "the quality"}

Document = Mapping[str, Any]  # a race's document, or one of its runs


def nats(kl: float) -> str:
    """Write a mean KL: "0" within rounding, one digit near it, else two: 5 × 10⁻⁸ nats, 0.037 nats."""
    if kl < KL_ROUNDING:
        return "0"
    return f"{small(float(f'{kl:.0e}') if kl < NEAR_ROUNDING else kl)} nats"


class Quality(TypedDict):
    """How well a mode predicts a text: KL(reference || mode) of the next token after each token, in nats; perplexity.

    `nbytes` is what the cache holds at the text's end.
    """

    kl: list[float]
    perplexity: float
    nbytes: int


def _tokens_words(run: Document) -> str:
    """Say whether a run chose the reference's tokens; if not, where they first differ and by what margin."""
    steps = len(run["step_s"])
    if run["identical"]:
        return f"all {steps} identical"
    differ = f"differ from token {run['first_divergence'] + 1} of {steps} on"
    margin = run["divergence_margin"]
    return differ if margin is None else f"{differ}; the reference's two best lay {margin:.3g} apart there"


def _row(run: Document, reference: Document) -> Document:
    held, allocated = run["cache_bytes"][-1], run["allocated_bytes"][-1]
    empty = [a - h for a, h in zip(run["allocated_bytes"], run["cache_bytes"], strict=True)]
    quality, account = run["quality"], run["books"]
    return {
        **run,
        "tokens": _tokens_words(run),
        "quality_words": quality
        and (
            "as the reference"
            if max(quality["kl"]) < KL_ROUNDING
            else f"KL {fmean(quality['kl']):.2g} nats on average, perplexity {quality['perplexity']:.4g}"
        ),
        "perplexity": quality["perplexity"] if quality else None,
        "kl": fmean(quality["kl"]) if quality else None,
        "held": held,
        "allocated": allocated,
        "wasted": allocated - held,
        "mean_wasted": fmean(empty),
        "most_wasted": max(empty),
        "empty_share": sum(empty) / (sum(run["allocated_bytes"]) or 1),
        "copied": account["copied"][-1] if account else None,
        "gathered": account["gathered"][-1] if account else None,
        "share": held / reference["cache_bytes"][-1],
    }


def run_of(found: Document, mode: str) -> Document:
    """Return the run of a mode."""
    return next(run for run in found["runs"] if run["mode"] == mode)


def rows(found: Document) -> list[Document]:
    """Return every run, the references first, with what a table says of it.

    That is how its tokens and predictions compare in words, its bytes at the last step (`held`, `allocated`, `wasted`,
    `copied`, `gathered`), the mean and the largest waste over all steps, the `empty_share` of what is allocated over
    all steps, and the `share` of the reference's bytes that it holds. transformers' own cache does not count what it
    copies; it has the count of `concat`, if that ran.
    """
    reference = run_of(found, "cached")
    told = [_row(run, reference) for run in found["runs"]]
    return [{**row, "copied": _joined(row, told)} if row["mode"] == "cached" else row for row in told]


def _joined(cached: Document, told: Sequence[Document]) -> int | None:
    """Return what transformers' DynamicCache writes at the last step, None if no run tells.

    It joins by `torch.cat`, as our design `concat` does, which counts: equal bytes held at every step are equal copies.
    """
    same = (row for row in told if row["mode"] == "concat" and row["cache_bytes"] == cached["cache_bytes"])
    return next((row["copied"] for row in same), None)


def caches_of(found: Document) -> list[Document]:
    """Return the rows of all that keep a cache, transformers' own among them."""
    return [r for r in rows(found) if r["kl"] is not None]


def designs_of(found: Document) -> list[Document]:
    """Return the rows of the designs, without the references."""
    return [r for r in caches_of(found) if r["mode"] != "cached"]


def sentences(found: Document) -> list[str]:
    """Summarise a race in Markdown sentences."""
    designs = designs_of(found)
    exact = [r for r in designs if r["exact"]]
    first = [_exact(exact)] if exact else []
    over_all = (written_most(designs), wasted_most(caches_of(found)))
    return [*first, *(_lossy(r) for r in designs if not r["exact"]), *filter(None, over_all)]


def _exact(exact: Sequence[Document]) -> str:
    diverged, most = [r for r in exact if not r["identical"]], max(max(r["quality"]["kl"]) for r in exact)
    tokens = f"{titles(diverged)} chose other tokens, by rounding" if diverged else "the same tokens as without a cache"
    loss = "KL 0 at every position of the text" if most < KL_ROUNDING else f"KL at most {most:.2g} nats, by rounding"
    return f"**Exact** ({titles(exact)}): {tokens}, and {loss}."


def _lossy(r: Document) -> str:
    lost = "nothing lost on the text yet, it is too short" if r["kl"] < KL_ROUNDING else f"mean KL {r['kl']:.2g} nats"
    return f"**{r['title']}**, lossy: holds {r['share']:.0%} of the reference's bytes; tokens {r['tokens']}; {lost}."


def written_most(designs: Sequence[Document]) -> str:
    """Which designs write most and least into the cache at the last step; '' where fewer than two are counted."""
    counted = [r for r in designs if r["copied"] is not None]
    if len(counted) < 2:
        return ""
    least, most = (_those(pick, counted, lambda r: r["copied"]) for pick in (min, max))
    low, high = (human(those[0]["copied"]) for those in (least, most))
    return f"At the last step {named(most)} write{_s(most)} {high} into the cache, {named(least)} {low}."


def wasted_most(designs: Sequence[Document]) -> str:
    """Which designs waste most over all steps, on average and at their worst step; '' if none wastes anything."""
    worst = _those(max, designs, lambda r: r["mean_wasted"]) if designs else []
    if not worst or not worst[0]["mean_wasted"]:
        return ""
    nothing = [r for r in designs if not r["most_wasted"]]
    none = f"; {named(nothing)} waste{_s(nothing)} nothing" if nothing else ""
    peak = _those(max, designs, lambda r: r["most_wasted"])
    mean, most = human(worst[0]["mean_wasted"]), human(peak[0]["most_wasted"])
    if [r["mode"] for r in worst] == [r["mode"] for r in peak]:
        return f"Over the whole run, {named(worst)} waste{_s(worst)} most, {mean} on average and {most} at most{none}."
    return (
        f"Over the whole run, {named(worst)} waste{_s(worst)} most on average, {mean}, and {named(peak)} most at one "
        f"step, {most}{none}."
    )


def in_perplexity(found: Document) -> str:
    """Give the largest mean KL a meaning: the perplexity of that design on the text beside the full cache's.

    '' if no design loses anything, and with random weights, of which perplexity says nothing.
    """
    told = [r for r in caches_of(found) if r["kl"] is not None]
    worst = max(told, key=lambda r: r["kl"], default=None)
    if worst is None or worst["kl"] < KL_ROUNDING or found["weights"] == "random":
        return ""
    full, less = (f"{r['perplexity']:.3g}" for r in (run_of({"runs": told}, "cached"), worst))
    said = f"“{worst['title']}”, at {small(worst['kl'])} nats,"
    if full == less:
        return f"{said} leaves the perplexity on this text at {full}."
    return (
        f"{said} takes the perplexity from {full} to {less}: the model hesitates as if between {less} "
        f"equally likely tokens, not {full}."
    )


def at_16_bits(share: float, dtype: str) -> str:
    """Say for codes of a float32 cache what share they would hold of a 16-bit one; '' for 16 bits.

    It is at most twice, because codes stay as large while the tokens that are kept exact shrink with the cache.
    """
    most = min(1.0, 2 * round(share, 2))
    return f" **Of a 16-bit cache the codes would hold up to {most:.0%}.**" if dtype == "float32" else ""


MANY, ALIKE = 10, 1.25  # times: as many bytes, in as long a step


def time_of_bytes(caches: Sequence[Document]) -> str:
    """Say how long the steps of designs take that write MANY times the bytes of the least, and how long its own takes.

    Designs that gather are left out. '' if none writes so much, and if they show no one thing: all of these steps are
    at most ALIKE as long, or all are longer than that and than each step that writes less. Where the quartiles of each
    of them overlap with those of the least, no effect of the bytes is claimed.
    """
    counted = [r for r in caches if r["mode"] != "cached"]  # the bytes of transformers' own are another design's
    least, _ = _extremes(counted)
    known = [r for r in counted if r["copied"] and not r["gathered"] and r["itl_s"]]
    heavy = [r for r in known if r["copied"] >= MANY * least["copied"]]
    longer = [r["itl_s"] / least["itl_s"] - 1 for r in heavy]
    if not heavy:
        return ""
    alike, light = max(longer) <= ALIKE - 1, [r["itl_s"] for r in known if r not in heavy]
    if not alike and (min(longer) <= ALIKE - 1 or min(r["itl_s"] for r in heavy) <= max(light)):
        return ""
    times = _reach([r["copied"] / least["copied"] for r in heavy], "{:,.0f}".format)
    took, instead = _reach([r["itl_s"] for r in heavy], _two_digits), _two_digits(least["itl_s"])
    who = " and ".join(f"“{r['title']}”" for r in heavy) if len(heavy) < 3 else f"{len(heavy)} caches"
    write, take = ("write", "take") if len(heavy) > 1 else ("writes", "takes")
    said = f"{who} {write} {times} times the bytes of “{least['title']}”"
    if took == instead:
        return f"{said} and {take} {took} a step, too"
    if not all(_overlap(r, least) for r in heavy):
        return f"{said} and {take} {took} a step instead of {instead}"
    beside = f"({took} against {instead})"
    if not alike:
        return f"{said}; the steps vary too much to tell whether that makes them longer {beside}"
    step = "their median steps are" if len(heavy) > 1 else "its median step is"
    more = _reach([max(0.0, each) for each in longer], "{:.0%}".format)
    return f"{said}; {step} {'not' if more == '0%' else more} longer, and the quartiles overlap"


def quartiles(run: Document) -> list[float]:
    """Return the lower quartile, the median and the upper quartile of a run's decode steps, in seconds."""
    steps = run["step_s"][1:]
    return quantiles(steps, n=4) if len(steps) > 1 else 3 * steps


def _overlap(one: Document, other: Document) -> bool:
    """Whether the middle halves of two runs' steps have a time in common."""
    (low, _, high), (lower, _, higher) = quartiles(one), quartiles(other)
    return low <= higher and lower <= high


def _two_digits(seconds: float) -> str:
    return aligned_millis(seconds, 2)


def cost_of_gathering(designs: Sequence[Document]) -> str:
    """Say how much longer the steps take of designs that gather, if each is slower than all that do not."""
    (least, _), slow = _extremes(designs), _slow_gatherers(designs)
    if not slow:
        return ""
    longer = _reach([r["itl_s"] - least["itl_s"] for r in slow], lambda seconds: millis(seconds, 1))
    steps = "Median steps with grey take" if len(slow) > 1 else "The median step with grey takes"
    return f"**{steps} {longer} longer** than “{least['title']}”; how much of that is gathering was not measured."


def _slow_gatherers(designs: Sequence[Document]) -> list[Document]:
    """Return the designs that gather, if there is one that does not and each of them is slower than all of those."""
    timed = [r for r in designs if r["itl_s"]]
    gather, others = ([r for r in timed if bool(r["gathered"]) is does] for does in (True, False))
    slower = gather and _extremes(designs)[0] and min(r["itl_s"] for r in gather) > max(r["itl_s"] for r in others)
    return gather if slower else []


def _reach(values: Sequence[float], words: Callable[[float], str]) -> str:
    """Say from which to which value these go: once, if both are written alike."""
    low, high = words(min(values)), words(max(values))
    return low if low == high else f"{low} to {high}"


def cost_of_bytes(caches: Sequence[Document]) -> str:
    """Say how much longer the step takes of the design that writes most, and whether its bytes can be the reason.

    Two findings rule the bytes out: another cache writes as much and adds less than half of that time, or another one
    writes MANY times fewer bytes and takes as long. The bytes of transformers' own are not counted, so what its step
    shows is told with an "if". '' if no two designs can be compared, of those whose bytes are counted.
    """
    counted = [r for r in caches if r["mode"] != "cached"]  # the bytes of transformers' own are another design's
    least, most = _extremes(counted)
    if not least:
        return ""
    more, longer = human(most["copied"] - least["copied"]), most["itl_s"] - least["itl_s"]
    if longer <= 0:
        return f"Writing {more} more takes “{most['title']}” no time that this run can tell."
    known = [r for r in counted if r["copied"] and not r["gathered"] and r["itl_s"] and r is not most]
    quick = [r for r in known if r["copied"] >= most["copied"] and r["itl_s"] - least["itl_s"] < longer / 2]
    slow = [r for r in known if MANY * r["copied"] <= most["copied"] and r["itl_s"] >= most["itl_s"]]
    if other := next(iter(quick + slow), None):
        amount = "as much" if other in quick else human(other["copied"])
        return (
            f"“{most['title']}” takes {millis(longer, 1)} longer than “{least['title']}”, but “{other['title']}” "
            f"writes {amount} in {millis(other['itl_s'], 2)}: here what is written does not decide."
        )
    took = f"its step is about {millis(longer, 1)} longer"
    said = f"“{most['title']}” writes {more} more than “{least['title']}”; {took}."
    theirs = next((r for r in caches if r["mode"] == "cached" and r["copied"] == most["copied"] and r["itl_s"]), None)
    if theirs is None or theirs["itl_s"] - least["itl_s"] >= longer / 2:
        return said
    doubt = "its bytes were not counted; if it writes as many, they alone do not explain the longer step"
    return f"{said} “{theirs['title']}” takes {millis(theirs['itl_s'], 2)}: {doubt}."


def _extremes(designs: Sequence[Document]) -> tuple[Document, Document]:
    """Return the designs that write least and most, of those that gather nothing; two empty ones if none counts."""
    known = [r for r in designs if r["copied"] and not r["gathered"] and r["itl_s"]]
    if not known:
        return {}, {}
    return min(known, key=lambda r: r["copied"]), max(known, key=lambda r: r["copied"])


def _s(members: Sequence[Document]) -> str:
    return "s" if len(members) == 1 else ""


def _those(
    pick: Callable[[Iterable[float]], float], designs: Sequence[Document], key: Callable[[Document], float]
) -> list[Document]:
    """Return all designs with the largest, or the smallest, value. Values that `human` writes alike count as equal."""
    best = human(pick(map(key, designs)))
    return [r for r in designs if human(key(r)) == best]


def named(members: Sequence[Document]) -> str:
    """Name these runs in a sentence, each in quotation marks: “8 bits” and “4 bits”."""
    return titles([{"title": f"“{r['title']}”"} for r in members])


def titles(members: Sequence[Document]) -> str:
    """Name these runs, one after another."""
    *others, last = (r["title"] for r in members)
    return f"{', '.join(others)} and {last}" if others else str(last)


def text(found: Document) -> str:
    """Format the result of a race for a terminal."""
    size = f"{found['prompt_tokens']} + {found['new_tokens']} tokens, {found['batch']} sequences"
    lines = [f"{found['title']}, {weights_in_words(found['weights'])}, {found['environment']['dtype']}: {size}", ""]
    for r in rows(found):
        step = "" if r["itl_s"] is None else f"{millis(r['itl_s'])} a step, "
        size = f"holds {human(r['held'])}, allocated {human(r['allocated'])}"
        quality = f"; {r['quality_words']}" if r["quality_words"] else ""
        lines.append(f"{r['mode']:10} {step}{size}; tokens {r['tokens']}{quality}")
    return "\n".join([*lines, "", *(sentence.replace("**", "") for sentence in sentences(found))])
