"""Answers questions with evidence from a comparison, a sweep or a calculation, in a few sentences each.

A function returns None if the figures can't answer, so that no answer goes beyond them. Standard library only.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvviz.base.words import brief, human, ratio
from kvviz.decoding.modes import title_of
from kvviz.experiments.sweep.spec import PRESETS
from kvviz.experiments.sweep.words import NEAR, shown, trends

UNSTEADY = 0.5  # quartile distance, as a share of the median, above which a typical step is unsteady

NAMES = {name: title_of(name) for name in ("uncached", "cached")}


@dataclass(frozen=True)
class Weighed:
    """A calculated model: bytes of its cache, and of its weights in several dtypes."""

    title: str
    tokens: int
    batch: int
    cache_dtype: str
    weights: Mapping[str, int]  # by dtype of the weights
    caches: Mapping[str, int]  # the cache of the same work, by dtype of the weights


@dataclass(frozen=True)
class AtHand:
    """The evidence on a page: runs of one comparison by mode (as in its document), a sweep's rows, a calculation."""

    title: str = ""
    prompt_tokens: int | None = None
    runs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rows: Sequence[Mapping[str, Any]] = ()
    weighed: Weighed | None = None

    @classmethod
    def of_document(cls, document: Mapping[str, Any] | None) -> "AtHand":
        """Take the runs from a comparison's document; None gives an empty instance."""
        if not document:
            return cls()
        runs = {run["mode"]: run for run in document["runs"]}
        return cls(str(document.get("model") or ""), document.get("prompt_tokens"), runs)

    def steps(self, mode: str, least: int = 3) -> list[float] | None:
        """Median seconds of each step of a mode over its passes; None if it ran fewer than `least` steps."""
        steps = list(self.runs.get(mode, {}).get("step_s") or ())
        return steps if len(steps) >= least else None

    @property
    def here(self) -> str:
        """The start of a sentence that names the run."""
        prompt = f", a prompt of {counted(self.prompt_tokens)}" if self.prompt_tokens else ""
        return f"In this run ({self.title}{prompt})"

    def told(self, parts: Sequence[str], more: str = "") -> str | None:
        """Join what is said of each mode into a sentence; None if nothing is."""
        return f"{self.here}: {'; '.join(parts)}.{more}{self.caution}" if parts else None

    @property
    def caution(self) -> str:
        """A warning if the passes differ so much that the medians may be accidental; else ""."""
        if not any(unsteady(run) for run in self.runs.values()):
            return ""
        return (
            " The passes differ widely here: at the typical step the quartiles are more than half the median apart, "
            "as on a device that is busy with something else. Run it again before you trust these figures."
        )


def unsteady(run: Mapping[str, Any]) -> bool:
    """Whether the quartiles at the typical step are further apart than UNSTEADY times their median."""
    columns = [run.get(name) or () for name in ("step_s_q1", "step_s", "step_s_q3")]
    widths = [(high - low) / middle for low, middle, high in zip(*columns, strict=False) if middle > 0]
    return bool(widths) and statistics.median(widths) > UNSTEADY


def counted(tokens: int) -> str:
    """Write a number of tokens in words."""
    return f"{tokens:,} token{'' if tokens == 1 else 's'}"


def _ratio(first: float, last: float) -> str:
    return f"{ratio(last / first)} times as long"


def steps_apart(at: AtHand) -> str | None:
    """Compare the first and last decode steps of both modes, and the tokens that each read."""
    uncached, cached = at.steps("uncached"), at.steps("cached")
    if not uncached or not at.prompt_tokens:
        return None
    first, last = at.prompt_tokens + 1, at.prompt_tokens + len(uncached) - 1
    words = (
        f"{at.here}, {NAMES['uncached']}: the first decode step read {counted(first)} and took {brief(uncached[1])}; "
        f"the last read {counted(last)} and took {brief(uncached[-1])}, {_ratio(uncached[1], uncached[-1])}."
    )
    if cached:
        words += (
            f" {NAMES['cached']}: each read 1 token, {brief(cached[1])} for the first, {brief(cached[-1])} for the "
            f"last, {_ratio(cached[1], cached[-1])}."
        )
    if uncached[-1] <= NEAR * uncached[1]:
        words += (
            " If the upper curve hardly climbs, that is no error: the work grew, but so small a step mostly starts "
            "operations and reads weights. Take a longer prompt or a larger model."
        )
    return words + at.caution


def waits(at: AtHand) -> str | None:
    """State the TTFT and the ITL of each mode."""
    parts = []
    for mode, name in NAMES.items():
        run = at.runs.get(mode, {})
        if run.get("ttft_s") and run.get("itl_s"):
            parts.append(f"{name}, TTFT {brief(run['ttft_s'])}, then {brief(run['itl_s'])} per token")
    both = " Both prefills do the same work; only the pace after them differs."
    return at.told(parts, both if len(parts) == 2 else "")


def parting(at: AtHand) -> str | None:
    """Compare the TTFT with the first and the last decode step."""
    parts = []
    for mode, name in NAMES.items():
        steps = at.steps(mode)
        if steps:
            first, second, last = brief(steps[0]), brief(steps[1]), brief(steps[-1])
            apart = f"TTFT {first}, {ratio(steps[0] / steps[1])} times the first decode step"
            parts.append(f"{name}, {apart} ({second}), last decode step {last}")
    return at.told(parts)


def summed(at: AtHand) -> str | None:
    """State the total tokens read, and the time of each half of the decode steps."""
    if not at.prompt_tokens:
        return None
    parts = []
    for mode, name in NAMES.items():
        steps = at.steps(mode, least=5)
        if steps:
            tokens = read_in_all(at.prompt_tokens, len(steps), caches=mode == "cached")
            decode = steps[1:]
            half = len(decode) // 2
            parts.append(
                f"{name}, {counted(tokens)} were read for {len(steps):,} new ones; the first {half:,} decode steps "
                f"took {brief(sum(decode[:half]))} together, the last {half:,} {brief(sum(decode[-half:]))}"
            )
    return at.told(parts)


def read_in_all(prompt: int, new: int, *, caches: bool) -> int:
    """Count the tokens that a run's forwards read: P + (P+1) + … + (P+N-1), or with a cache P + N - 1."""
    return prompt + new - 1 if caches else new * prompt + new * (new - 1) // 2


def four_metrics(at: AtHand) -> str | None:
    """State tokens/s, ITL, TTFT and peak memory of both modes, along a sweep's first axis or else of one run."""
    along = _along_an_axis(at)
    if along:
        return along
    lines = []
    for mode, name in NAMES.items():
        run = at.runs.get(mode, {})
        if not run.get("itl_s") or not run.get("tokens_per_s"):
            continue
        rate = shown("tokens_per_s", run["tokens_per_s"])
        parts = [f"{rate} tokens/s, {brief(run['itl_s'])} per token, TTFT {brief(run['ttft_s'])}"]
        if run.get("peak_bytes") is not None:
            parts.append(f"at most {human(run['peak_bytes'])} above the weights")
        if run.get("cache_bytes"):
            parts.append(f"{human(run['cache_bytes'][-1])} in the cache at the end")
        lines.append(f"- **{name}**: {', '.join(parts)}.")
    found = "\n".join(lines)
    return f"{at.here}:\n\n{found}\n\n{at.caution.strip()}".rstrip() if lines else None


def _along_an_axis(at: AtHand) -> str | None:
    lines: dict[str, tuple[str, list[str]]] = {}
    place = None
    for trend in trends(at.rows, ("tokens_per_s", "itl_s", "ttft_s", "peak_bytes")):
        place = place or (trend.model, trend.fixed, trend.axis)
        if trend.mode in NAMES and (trend.model, trend.fixed, trend.axis) == place:
            head = f"**{NAMES[trend.mode]}**, {trend.range}"
            lines.setdefault(trend.mode, (head, []))[1].append(trend.words)
    if not lines:
        return None
    held = f", {place[1]}" if place and place[1] else ""
    found = "\n".join(f"- {head}: {'; '.join(words)}." for head, words in lines.values())
    return f"In this sweep ({place[0] if place else ''}{held}):\n\n{found}"


def shared_step(at: AtHand) -> str | None:
    """Compare the time of a cached decode step for few sequences and for many."""
    trend = next((t for t in trends(at.rows, ("itl_s",)) if t.axis == "batch" and t.mode == "cached"), None)
    if trend is None:
        return None
    more = trend.end / trend.start
    return (
        f"In this sweep ({trend.model}), from {trend.start:,} to {trend.end:,} sequences, {more:.3g} times as many "
        f"tokens per step, a cached decode step went from {brief(trend.values[0])} to {brief(trend.values[-1])}, "
        f"{_ratio(trend.values[0], trend.values[-1])}."
    )


def published(sweep: str) -> str:
    """State how the time per token of each mode went in the kept table of a named sweep, and where it is from."""
    preset = PRESETS[sweep]
    assert preset.published is not None
    along = [
        f"{title_of(trend.mode)}, {trend.range}: time per token {trend.change}"
        for trend in trends(preset.published.rows, ("itl_s",))
    ]
    whose = f"{preset.published.note}; [source]({preset.source})" if preset.source else preset.published.note
    return f"Not measured here ({whose}): {'; '.join(along)}."


def weighed(at: AtHand) -> str | None:
    """State the bytes of the weights in each dtype and of the cache beside them."""
    case = at.weighed
    if case is None or len(case.weights) < 2:
        return None
    parts = "; ".join(
        f"weights in {dtype}: {human(size)}, cache {human(case.caches[dtype])} ({case.caches[dtype]:,} B)"
        for dtype, size in case.weights.items()
    )
    requests = f" in each of {case.batch:,} sequences" if case.batch > 1 else ""
    return f"For {case.title}, {counted(case.tokens)}{requests}, cache in {case.cache_dtype}, by the formula: {parts}."
