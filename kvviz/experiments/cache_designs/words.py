"""What a measured race of cache designs comes to: the rows of its table, and what they say. Standard library only."""

from collections.abc import Mapping, Sequence
from typing import Any

from kvviz.base.words import human
from kvviz.caches.designs import DESIGNS

NOTHING = 1e-9  # nats: what rounding makes of a divergence that is none
PARTS = {"proof": "the tokens", "books": "the memory", "clock": "the clock", "text": "the quality"}

# Of what is no design of kvviz: what takes time in it.
_SLOW = {
    "uncached": "Each step reads the whole sequence again.",
    "cached": "Joins new keys and values on to the old in a new tensor, as our own “Joined anew” does.",
    "static": "Attention goes over the whole buffer at each step, the empty slots masked: that is the design.",
    "quantized": "Each step makes numbers of all codes; a kernel could do it where it multiplies.",
}
Found = Mapping[str, Any]


def slow(mode: str) -> str:
    """What takes time in a mode, and whether that is the design or a simple way of doing it."""
    return DESIGNS[mode].slow if mode in DESIGNS else _SLOW[mode]


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean."""
    return sum(values) / len(values)


def tokens_said(run: Found) -> str:
    """Whether a run's tokens are those of the reference; else where they first differ and how close the choice was."""
    steps = len(run["step_s"])
    if run["identical"]:
        return f"all {steps} identical"
    said = f"differ from token {run['first_divergence'] + 1} of {steps} on"
    margin = run["divergence_margin"]
    return said if margin is None else f"{said}; the reference's two best lay {margin:.3g} apart there"


def quality_said(run: Found) -> str:
    """How far a run's predictions are from the reference's, on the same text."""
    quality = run["quality"]
    if max(quality["kl"]) < NOTHING:
        return "as the reference"
    return f"KL {mean(quality['kl']):.2g} nats in the mean, perplexity {quality['perplexity']:.4g}"


def row(run: Found, reference: Found) -> dict[str, Any]:
    """One run in figures: bytes at its last step, a decode step's seconds, what it moves."""
    held, allocated = run["cache_bytes"][-1], run["allocated_bytes"][-1]
    kept, books = run["quality"], run["books"]
    return {
        "mode": run["mode"],
        "title": run["title"],
        "exact": run["exact"],
        "tokens": tokens_said(run),
        "first_divergence": run["first_divergence"],
        "margin": run["divergence_margin"],
        "quality": "" if kept is None else quality_said(run),
        "perplexity": None if kept is None else kept["perplexity"],
        "kl": None if kept is None else mean(kept["kl"]),
        "step_s": run["itl_s"],
        "held": held,
        "allocated": allocated,
        "wasted": allocated - held,
        "copied": None if books is None else books["copied"][-1],
        "gathered": None if books is None else books["gathered"][-1],
        "share": held / reference["cache_bytes"][-1],
        "slow": run["slow"],
    }


def run_of(found: Found, mode: str) -> Found:
    """The run of a mode."""
    return next(run for run in found["runs"] if run["mode"] == mode)


def rows(found: Found) -> list[dict[str, Any]]:
    """Every run in figures, the references first."""
    reference = run_of(found, "cached")
    return [row(run, reference) for run in found["runs"]]


def sentences(found: Found) -> list[str]:
    """What to see in it, in Markdown."""
    designs = [r for r in rows(found) if r["kl"] is not None and r["mode"] != "cached"]
    exact = [r for r in designs if r["exact"]]
    said = [_exact(found, exact)] if exact else []
    return [*said, *(_lossy(r) for r in designs if not r["exact"]), *_moved(designs)]


def _exact(found: Found, exact: Sequence[Found]) -> str:
    parted = [r for r in exact if not run_of(found, r["mode"])["identical"]]
    most = max(max(run_of(found, r["mode"])["quality"]["kl"]) for r in exact)
    tokens = f"{_named(parted)} chose other tokens, by rounding" if parted else "the same tokens as without a cache"
    loss = "KL 0 at every position of the text" if most < NOTHING else f"KL at most {most:.2g} nats, by rounding"
    return f"**Exact** ({_named(exact)}): {tokens}, and {loss}."


def _lossy(r: Found) -> str:
    held = f"**{r['title']}**, lossy: holds {r['share']:.0%} of the reference's bytes; tokens {r['tokens']}; "
    lost = "nothing lost on the text yet, it is too short" if r["kl"] < NOTHING else f"mean KL {r['kl']:.2g} nats"
    return f"{held}{lost}."


def _moved(designs: Sequence[Found]) -> list[str]:
    """Which moves most at its last step, and which least; which wastes most."""
    counted = [(r["copied"] + r["gathered"], r) for r in designs if r["copied"] is not None]
    said = []
    if len(counted) > 1:
        (least, still), (most, mover) = (pick(counted, key=lambda pair: pair[0]) for pick in (min, max))
        said.append(
            f"**{mover['title']}** writes most at the last step, {human(most)} ({human(mover['copied'])} into what it "
            f"keeps, {human(mover['gathered'])} for attention alone); **{still['title']}** least, {human(least)}."
        )
    worst = max(designs, key=lambda r: r["wasted"], default=None)
    if worst is not None and worst["wasted"]:
        said.append(f"**{worst['title']}** wastes most: {human(worst['wasted'])} are allocated and hold nothing.")
    return said


def _named(members: Sequence[Found]) -> str:
    return ", ".join(r["title"] for r in members)


def text(found: Found) -> str:
    """The race for a terminal."""
    size = f"{found['prompt_tokens']} + {found['new_tokens']} tokens, {found['batch']} sequences"
    lines = [f"{found['title']}, {found['weights']} weights, {found['environment']['dtype']}: {size}", ""]
    for r in rows(found):
        step = "" if r["step_s"] is None else f"{1e3 * r['step_s']:.3g} ms a step, "
        lines.append(
            f"{r['mode']:10} {step}holds {human(r['held'])}, allocated {human(r['allocated'])}; tokens {r['tokens']}"
            + (f"; {r['quality']}" if r["quality"] else "")
        )
    return "\n".join([*lines, "", *(sentence.replace("**", "") for sentence in sentences(found))])
