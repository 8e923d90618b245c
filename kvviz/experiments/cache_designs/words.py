"""Turns the result of a race of cache designs into table rows and sentences. Standard library only."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from kvviz.base.words import human

KL_ROUNDING = 1e-9  # nats: a smaller divergence is rounding
PARTS = {"proof": "the tokens", "books": "the memory", "clock": "the clock", "text": "the quality"}

Document = Mapping[str, Any]  # a race's document, or one of its runs


class Quality(TypedDict):
    """How well a mode predicts a text.

    `kl` is KL(reference || mode) of the next-token distribution after each token, in nats; `perplexity` is that of the
    text; `nbytes` is what the cache holds at its end.
    """

    kl: list[float]
    perplexity: float
    nbytes: int


class Row(TypedDict):
    """One run's table row: bytes held and moved at its last step, the seconds of a decode step, and its quality."""

    mode: str
    title: str
    exact: bool
    tokens: str
    first_divergence: int | None
    margin: float | None
    quality: str
    perplexity: float | None
    kl: float | None
    step_s: float | None
    held: int
    allocated: int
    wasted: int
    copied: int | None
    gathered: int | None
    share: float
    slow: str


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean."""
    return sum(values) / len(values)


def _tokens_words(run: Document) -> str:
    """Say whether a run chose the reference's tokens; if not, where they first differ and by what margin."""
    steps = len(run["step_s"])
    if run["identical"]:
        return f"all {steps} identical"
    differ = f"differ from token {run['first_divergence'] + 1} of {steps} on"
    margin = run["divergence_margin"]
    return differ if margin is None else f"{differ}; the reference's two best lay {margin:.3g} apart there"


def _quality_words(quality: Quality) -> str:
    """Say how far a mode's predictions are from the reference's on the same text."""
    if max(quality["kl"]) < KL_ROUNDING:
        return "as the reference"
    return f"KL {mean(quality['kl']):.2g} nats on average, perplexity {quality['perplexity']:.4g}"


def _row(run: Document, reference: Document) -> Row:
    held, allocated = run["cache_bytes"][-1], run["allocated_bytes"][-1]
    quality, account = run["quality"], run["books"]
    return {
        "mode": run["mode"],
        "title": run["title"],
        "exact": run["exact"],
        "tokens": _tokens_words(run),
        "first_divergence": run["first_divergence"],
        "margin": run["divergence_margin"],
        "quality": "" if quality is None else _quality_words(quality),
        "perplexity": None if quality is None else quality["perplexity"],
        "kl": None if quality is None else mean(quality["kl"]),
        "step_s": run["itl_s"],
        "held": held,
        "allocated": allocated,
        "wasted": allocated - held,
        "copied": None if account is None else account["copied"][-1],
        "gathered": None if account is None else account["gathered"][-1],
        "share": held / reference["cache_bytes"][-1],
        "slow": run["slow"],
    }


def run_of(found: Document, mode: str) -> Document:
    """Return the run of a mode."""
    return next(run for run in found["runs"] if run["mode"] == mode)


def rows(found: Document) -> list[Row]:
    """Return a row for every run, the references first."""
    reference = run_of(found, "cached")
    return [_row(run, reference) for run in found["runs"]]


def sentences(found: Document) -> list[str]:
    """Summarise a race in Markdown sentences."""
    designs = [r for r in rows(found) if r["kl"] is not None and r["mode"] != "cached"]
    exact = [r for r in designs if r["exact"]]
    first = [_exact(found, exact)] if exact else []
    return [*first, *(_lossy(r) for r in designs if not r["exact"]), *_moved(designs)]


def _exact(found: Document, exact: Sequence[Row]) -> str:
    diverged = [r for r in exact if not run_of(found, r["mode"])["identical"]]
    most = max(max(run_of(found, r["mode"])["quality"]["kl"]) for r in exact)
    tokens = (
        f"{_titles(diverged)} chose other tokens, by rounding" if diverged else "the same tokens as without a cache"
    )
    loss = "KL 0 at every position of the text" if most < KL_ROUNDING else f"KL at most {most:.2g} nats, by rounding"
    return f"**Exact** ({_titles(exact)}): {tokens}, and {loss}."


def _lossy(r: Row) -> str:
    held = f"**{r['title']}**, lossy: holds {r['share']:.0%} of the reference's bytes; tokens {r['tokens']}; "
    lost = (
        "nothing lost on the text yet, it is too short"
        if (r["kl"] or 0) < KL_ROUNDING
        else f"mean KL {r['kl']:.2g} nats"
    )
    return f"{held}{lost}."


def _moved(designs: Sequence[Row]) -> list[str]:
    """Name the designs that write most and least at the last step, and the one that wastes most."""
    written = [(r["copied"], r["gathered"] or 0, r["title"]) for r in designs if r["copied"] is not None]
    found = []
    if len(written) > 1:
        least, most = (pick(written, key=lambda one: one[0] + one[1]) for pick in (min, max))
        found.append(
            f"**{most[2]}** writes most at the last step, {human(most[0] + most[1])} ({human(most[0])} into what it "
            f"keeps, {human(most[1])} for attention alone); **{least[2]}** least, {human(least[0] + least[1])}."
        )
    worst = max(designs, key=lambda r: r["wasted"], default=None)
    if worst is not None and worst["wasted"]:
        found.append(f"**{worst['title']}** wastes most: {human(worst['wasted'])} are allocated and hold nothing.")
    return found


def _titles(members: Sequence[Row]) -> str:
    return ", ".join(r["title"] for r in members)


def text(found: Document) -> str:
    """Format the result of a race for a terminal."""
    size = f"{found['prompt_tokens']} + {found['new_tokens']} tokens, {found['batch']} sequences"
    lines = [f"{found['title']}, {found['weights']} weights, {found['environment']['dtype']}: {size}", ""]
    for r in rows(found):
        step = "" if r["step_s"] is None else f"{1e3 * r['step_s']:.3g} ms a step, "
        lines.append(
            f"{r['mode']:10} {step}holds {human(r['held'])}, allocated {human(r['allocated'])}; tokens {r['tokens']}"
            + (f"; {r['quality']}" if r["quality"] else "")
        )
    return "\n".join([*lines, "", *(sentence.replace("**", "") for sentence in sentences(found))])
