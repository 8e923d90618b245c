"""Tells the shape of a curve: whether it is flat, how steeply it goes, and whether two curves go alike.

Each is said only where a 95% interval bears it out. Standard library only, but for Student's quantile.
"""

import math
from collections.abc import Sequence
from statistics import fmean, linear_regression, median

from kvviz.experiments.comparison.curve_fit import Estimate, Fit, student
from kvviz.experiments.comparison.records import ShapeName

FLAT = 0.1  # a flat curve changes by less than this share of its median, with 95% certainty
ROUNDING = 1e-9  # of a power whose points lie exactly on their line
SURE = 0.25  # two powers whose half intervals add up to more can't show that two curves go alike


def slope(xs: Sequence[float], ys: Sequence[float]) -> Estimate | None:
    """Return the slope of the least-squares line with Student's interval; None for fewer than 3 different xs."""
    if len(set(xs)) < 3:
        return None
    value, start = linear_regression(xs, ys)
    middle, free = fmean(xs), len(xs) - 2
    left = sum((y - start - value * x) ** 2 for x, y in zip(xs, ys, strict=True))
    half = student(free) * math.sqrt(left / free / sum((x - middle) ** 2 for x in xs))
    return Estimate(value, value - half, value + half)


def power(xs: Sequence[float], ys: Sequence[float]) -> Estimate | None:
    """Return the power of x with which y goes, the slope of its logarithms; None for few points or one not above 0."""
    if min(*xs, *ys) <= 0:
        return None
    return slope([math.log(x) for x in xs], [math.log(y) for y in ys])


def flat(xs: Sequence[float], ys: Sequence[float]) -> bool:
    """Whether a line through these points changes by less than FLAT of their median, with 95% certainty."""
    found = slope(xs, ys)
    return found is not None and _most(found) * (max(xs) - min(xs)) < FLAT * median(ys)


def alike(here: Estimate | None, there: Estimate | None) -> bool | None:
    """Whether two powers agree within their intervals; None where no interval, or too wide a one, can tell."""
    if here is None or there is None:
        return None
    if max(here.low - there.high, there.low - here.high) > ROUNDING:
        return False
    return True if (here.high - here.low + there.high - there.low) / 2 <= SURE else None


def shape(found: Fit, median_s: float) -> ShapeName | None:
    """Return the shape of a fitted curve of median `median_s`; None where its interval can't tell."""
    middle = (found.first + found.last) / 2
    whole = found.change(found.first, found.last)
    parts = (whole, found.change(found.first, middle), found.change(middle, found.last))
    if max(map(_most, parts)) < FLAT * median_s:
        return "flat"
    return ("climb" if whole.value > 0 else "fall") if whole.told else None


def _most(found: Estimate) -> float:
    return max(abs(found.low), abs(found.high))
