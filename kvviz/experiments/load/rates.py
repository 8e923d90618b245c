"""Chooses the rates of a load sweep, and says of one whether the queue grew without bound.

While all places are taken, the number of waiting requests grows at the rate at which they come less the rate at which
they are completed. So the slope of the waiting requests over time shows how far the one falls behind the other. It is
fitted to the means of BLOCKS equal stretches of the arrivals' time, without the first FILLING of them, in which the
places are taken one after another.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvviz.experiments.shapes import slope

BLOCKS, FILLING = 8, 2
BEHIND = 0.05  # share of the offered rate: a queue that grows more slowly can't be told from a busy hour
HALVINGS = 3  # how often the capacity is halved at most, for the lowest rate
BISECTIONS = 2  # between the highest rate without and the lowest one with a growing queue
AROUND = 1.2  # how many times as long as at capacity such a pass takes at most, about
NARROWEST = 3  # all at once, at capacity, and at twice as many: less is no sweep
BEYOND = 8  # times the capacity: requests this fast are no longer told from all at once


@dataclass(frozen=True)
class Growth:
    """By how many requests a second the queue grew, and half of the 95% interval of that; `rate` was offered."""

    rate: float
    per_s: float
    within: float

    @property
    def unbounded(self) -> bool:
        """Whether completions fell behind arrivals by more than the interval, and by more than BEHIND."""
        return self.per_s - self.within > 0 and self.per_s > BEHIND * self.rate


def growth(steps: Mapping[str, Sequence[float]], last_s: float, rate: float) -> Growth:
    """Fit a line to the waiting requests; `steps` are those of a timeline, `last_s` is the last arrival."""
    length = last_s / BLOCKS
    means = [_mean(steps, number * length, (number + 1) * length) for number in range(FILLING, BLOCKS)]
    found = slope(range(len(means)), means)
    assert found is not None  # there are more than two stretches
    return Growth(rate, found.value / length, (found.high - found.low) / 2 / length)


def _mean(steps: Mapping[str, Sequence[float]], begins: float, ends: float) -> float:
    """How many waited on average between two moments."""
    rows = zip(steps["began_s"], steps["ended_s"], steps["waiting"], strict=True)
    return sum(max(0.0, min(ends, b) - max(begins, a)) * waiting for a, b, waiting in rows) / (ends - begins)


def passes(halvings: int) -> float:
    """Duration of a sweep that halves capacity `halvings` times, over that of serving all requests at once."""
    return 1 + 2 ** (halvings + 1) + BISECTIONS * AROUND


def planned(capacity: float, most: int, least: int, budget_s: float) -> tuple[int, int] | None:
    """How often the capacity is halved for the lowest rate, and how many requests are served at each.

    The widest range for which the seconds suffice with twice the `least` requests, which tell a growing queue more
    surely, or else with the least; None if no range is narrow enough.
    """
    for enough, narrowest in ((min(most, 2 * least), 1), (least, 0)):
        for halvings in range(HALVINGS, narrowest - 1, -1):
            fit = int(budget_s * capacity / passes(halvings))
            if fit >= enough:
                return halvings, min(most, fit)
    return (0, least) if budget_s * capacity >= NARROWEST * least else None


def next_rate(found: Sequence[tuple[float, bool]], start: float, capacity: float) -> float | None:
    """The rate to serve next; None at the end. `found`: the rates so far, in order, and whether the queue grew.

    They double until it grows (or halve until it does not), then the interval around the knee is bisected.
    """
    if not found:
        return start
    rate, (steady, growing) = found[-1][0], knee(found)
    if growing is None:
        return 2 * rate if rate < BEYOND * capacity else None
    if steady is None:
        return rate / 2 if rate > capacity / 2**BEYOND else None
    grew = [each for _, each in found]
    bisected = len(found) - 1 - max(grew.index(True), grew.index(False))
    return rounded(math.sqrt(steady * growing)) if bisected < BISECTIONS else None


def knee(found: Sequence[tuple[float, bool]]) -> tuple[float | None, float | None]:
    """The highest rate below which no queue grew, and the lowest at which one did; None if not found."""
    growing = min((rate for rate, grew in found if grew), default=None)
    return max((rate for rate, grew in found if not grew and rate < (growing or math.inf)), default=None), growing


def rounded(rate: float) -> float:
    """A rate with two digits, so that it can be read."""
    return float(f"{rate:.2g}")
