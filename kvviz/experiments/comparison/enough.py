"""Decides how many timed passes are enough, and gives the 95% interval of a speed-up.

The passes of two modes take turns, so a pass of one is held against the pass of the other beside it: what is slow for
both, such as a warm processor, cancels in the logarithm of their ratio. The passes asked for first tell how far these
logarithms spread; from that spread follows how many passes the interval needs (C. Stein, A two-sample test for a linear
hypothesis whose power is independent of the variance, Ann. Math. Stat. 16, 1945). Since the number of passes follows
from the first spread alone, and not from the ratios, the interval is as honest as one with a number fixed before.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvviz.decoding.modes import MODES
from kvviz.experiments.comparison.curve_fit import Fit, student
from kvviz.experiments.comparison.figures import reference_mode
from kvviz.experiments.comparison.verdict import fitted

if TYPE_CHECKING:
    from kvviz.experiments.comparison.comparison_run import ComparisonRun, TimedPasses

MOST = 50  # timed passes of a mode
LONGER = 1.5  # times that all passes may take what those asked for took, unless a budget is given


def log_ratios(base: Sequence[float], own: Sequence[float]) -> list[float]:
    """Return the logarithm of each speed-up, from the seconds of passes that lie beside one another."""
    return [math.log(one / other) for one, other in zip(base, own, strict=False)]


def half_width(logs: Sequence[float], first: int) -> float | None:
    """Return half the 95% interval of the mean of `logs` by the spread of the `first` ones; None for fewer than 2."""
    first = min(first, len(logs))
    if first < 2:
        return None
    return student(first - 1) * statistics.stdev(logs[:first]) / math.sqrt(len(logs))


def speedup_interval(base: Sequence[float], own: Sequence[float], first: int) -> list[float] | None:
    """Return the 95% interval of a speed-up from the seconds of each pass; None for fewer than 2 pairs of passes.

    It holds the ratio of the two medians, which is the speed-up that is shown.
    """
    logs = log_ratios(base, own)
    half = half_width(logs, first)
    if half is None:
        return None
    middle = statistics.fmean(logs)
    shown = statistics.median(base) / statistics.median(own)
    return [min(shown, math.exp(middle - half)), max(shown, math.exp(middle + half))]


def interval_of(base: "TimedPasses", own: "TimedPasses", first: int) -> list[float] | None:
    """Return the 95% interval of a speed-up from the kept passes of two modes; None for fewer than 2 pairs of them.

    None, too, if other work disturbed every pass of one mode alone: the spread does not hold how unlike the two modes'
    conditions were.
    """
    told = base.disturbed == own.disturbed and len(base.kept) > 1 and len(own.kept) > 1
    return speedup_interval(base.totals, own.totals, first) if told else None


def width(totals: Mapping[str, Sequence[float]], baseline: str, first: int) -> float | None:
    """Return the widest speed-up's half interval, as a share of the speed-up; None if no two modes were timed twice."""
    halves = [half_width(log_ratios(totals[baseline], own), first) for mode, own in totals.items() if mode != baseline]
    known = [half for half in halves if half is not None]
    return math.expm1(max(known)) if known and len(known) == len(halves) else None


@dataclass(frozen=True)
class Known:
    """How well a comparison's results are known so far: half their 95% intervals, as shares of their size.

    `speedup` is the widest of all speed-ups; `curve` is the widest of all fitted curves, at its middle token. None if
    there is no such result or no interval of it.
    """

    speedup: float | None
    curve: float | None

    @classmethod
    def of(cls, run: "ComparisonRun") -> "Known":
        """Read it off the passes that are kept so far."""
        work, totals = run.work, {mode: passes.totals for mode, passes in run.passes.items()}
        each = (_curve(run.prompt_tokens, mode, passes.kept) for mode, passes in run.passes.items())
        curves = [found for found in each if found is not None]
        return cls(width(totals, reference_mode(work.modes), work.repeats), max(curves, default=None))

    def within(self, precision: float) -> bool:
        """Whether all that has an interval is known this well."""
        return all(half is None or half <= precision for half in (self.speedup, self.curve))

    @property
    def words(self) -> str:
        """State what is known, and how well."""
        each = (("the speed-up", self.speedup), ("the curves", self.curve))
        return " and ".join(f"{name} to {half:.1%}" for name, half in each if half is not None)

    @property
    def ending(self) -> str:
        return f"; known are {self.words}" if self.words else ""


def _curve(prompt_tokens: int, mode: str, kept: Sequence[Sequence[float]]) -> float | None:
    steps = [statistics.median(column) for column in zip(*kept, strict=True)]
    found = fitted(2 if MODES[mode].caches is False else 1, prompt_tokens, {"step_s": steps})
    return found.relative_width if isinstance(found, Fit) else None


def why_stop(run: "ComparisonRun") -> str:
    """Say in a sentence why no further round of passes is timed; "" if another one is needed."""
    work = run.work
    rounds = min(len(passes.repeats) for passes in run.passes.values())
    if rounds < work.repeats:
        return ""
    asked = f"{work.repeats} {'pass' if work.repeats == 1 else 'passes'} of each mode: as many as were asked for."
    if work.precision is None:
        return asked
    known = Known.of(run)
    clean = min(sum(found.clean is not False for found in passes.disturbances) for passes in run.passes.values())
    if known.within(work.precision) and clean >= work.repeats:
        if not known.words:
            return asked
        return f"What was asked for, {work.precision:.0%}, is reached: {known.words}."
    if rounds >= MOST:
        return f"No mode gets more than {MOST} passes{known.ending}."
    seconds = [sum(sum(passes.repeats[number]) for passes in run.passes.values()) for number in range(rounds)]
    budget = LONGER * sum(seconds[: work.repeats]) if work.budget_s is None else work.budget_s
    if sum(seconds) + seconds[-1] > budget:
        return f"The time for more passes was used up{known.ending}."
    return ""
