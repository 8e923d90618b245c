"""Fits measured latency curves: a + b t with the cache, a + b t + c t^2 without it.

A single step can take ten times as long as its neighbours, so the fit is a robust M-estimate: it starts from least
absolute deviations and then applies Tukey's bisquare, which gives outliers a weight of 0. The 95% intervals are
Huber's and assume that the noise is independent from step to step; they do not cover a drift over the run. If the
points can't determine a value, the result says so.

Sources: P. J. Huber and E. M. Ronchetti, Robust Statistics, 2nd edition, chapter 7. The crossover's interval holds the
tokens at which the difference can't be told from 0: E. C. Fieller, J. R. Stat. Soc. B 16 (1954).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.polynomial import polynomial

from kvviz.base.errors import KvvizError

FEWEST = 8  # points needed per degree; with fewer, the intervals mean nothing
SMALL = 3.0  # widens variances by 1 + 3 / freedom: of few points the covariance below came out too small, by simulation
_TUNING = 4.685  # bisquare: on data without spikes the fit is 95% as efficient as least squares
_NORMAL = 0.6745  # median absolute deviation of a standard normal
_ROUNDS = 60
_STUDENT = (12.7062, 4.30265, 3.18245, 2.77645, 2.57058)

Array = np.ndarray


@dataclass(frozen=True)
class Estimate:
    """One coefficient with its 95% interval."""

    value: float
    low: float
    high: float

    @property
    def told(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, eq=False)
class Fit:
    """A polynomial fitted to (token, seconds).

    `coefficients` are a, b (and c); `spread` is the noise's standard deviation in seconds; `points` were fitted, of
    which `spikes` got a weight of 0; `first` and `last` are the range of tokens; `quantile` is Student's.
    """

    coefficients: tuple[Estimate, ...]
    spread: float
    points: int
    spikes: int
    first: float
    last: float
    covariance: Array
    quantile: float

    @property
    def values(self) -> list[float]:
        """The coefficients without their intervals."""
        return [row.value for row in self.coefficients]

    @property
    def relative_width(self) -> float:
        """Half the 95% interval of the curve at its middle token, as a share of the seconds there."""
        middle = np.array([(self.first + self.last) / 2])
        value = float(polynomial.polyval(middle, self.values)[0])
        half = self.quantile * math.sqrt(max(0.0, float(self.variance_at(middle)[0])))
        return half / value if value > 0 else math.inf

    def change(self, start: float, end: float) -> Estimate:
        """Return by how many seconds the curve rises from one context to another."""
        rise = np.diff(np.vander(np.array([start, end]), len(self.coefficients), increasing=True), axis=0)[0]
        value = float(rise @ self.values)
        half = self.quantile * math.sqrt(max(0.0, float(rise @ self.covariance @ rise)))
        return Estimate(value, value - half, value + half)

    def variance_at(self, tokens: Array) -> Array:
        """Return the variance of the fitted seconds at each context."""
        powers = np.vander(tokens, len(self.coefficients), increasing=True)
        return np.einsum("ti,ij,tj->t", powers, self.covariance, powers)


def fit(tokens: Sequence[float], seconds: Sequence[float], degree: int) -> Fit:
    """Fit a + b t (`degree` 1) or a + b t + c t^2 (2). Raises KvvizError if the points do not allow a fit."""
    _check(tokens, seconds, degree)
    middle, half = (max(tokens) + min(tokens)) / 2, (max(tokens) - min(tokens)) / 2
    rows = np.vander((np.array(tokens) - middle) / half, degree + 1, increasing=True)
    try:
        solved, scale, residuals = _settled(rows, np.array(seconds, float))
        covariance = _covariance(rows, residuals, scale)
    except np.linalg.LinAlgError as error:
        raise KvvizError("too few of these steps are alike enough to fit; take more repeats") from error
    back = np.zeros((degree + 1, degree + 1))  # from coefficients in (t - middle) / half to coefficients in t
    for power in range(degree + 1):
        back[: power + 1, power] = polynomial.polypow([-middle / half, 1 / half], power)
    free = len(tokens) - degree - 1
    covariance = (1 + SMALL / free) * back @ covariance @ back.T
    quantile = student(free)
    halves = quantile * np.sqrt(np.maximum(np.diag(covariance), 0.0))
    ends = zip((back @ solved).tolist(), halves.tolist(), strict=True)
    return Fit(
        coefficients=tuple(Estimate(value, value - half, value + half) for value, half in ends),
        spread=scale,
        points=len(tokens),
        spikes=int((abs(residuals) >= _TUNING * scale).sum()) if scale else 0,
        first=min(tokens),
        last=max(tokens),
        covariance=covariance,
        quantile=quantile,
    )


def _check(tokens: Sequence[float], seconds: Sequence[float], degree: int) -> None:
    if degree not in (1, 2):
        raise KvvizError(f"degree is {degree}; it is 1 for a line, 2 for a parabola")
    if len(tokens) != len(seconds):
        raise KvvizError(f"{len(tokens)} tokens and {len(seconds)} times; each step has one of both")
    if not all(math.isfinite(value) for value in (*tokens, *seconds)):
        raise KvvizError("a token or a time is no finite number")
    need = FEWEST * degree
    if len(set(tokens)) < need:
        raise KvvizError(f"{len(set(tokens))} steps are too few to fit; decode at least {need} tokens")


def _settled(rows: Array, seconds: Array) -> tuple[Array, float, Array]:
    """Iterate the M-estimate until it converges; return its coefficients, scale and residuals."""
    floor = 1e-12 * abs(seconds).max() or 1e-300
    solved = _weighted(rows, seconds, np.ones(len(rows)))
    for _ in range(_ROUNDS):  # weights of 1 / |residual| lead to least absolute deviations
        distances = abs(seconds - rows @ solved)
        smallest = max(1e-3 * np.median(distances), floor)
        solved, before = _weighted(rows, seconds, 1 / np.maximum(distances, smallest)), solved
        if np.allclose(solved, before, rtol=1e-9, atol=floor):
            break
    scale = _scale(seconds - rows @ solved, rows)
    for _ in range(_ROUNDS if scale > floor else 0):
        weights = _bisquare((seconds - rows @ solved) / (_TUNING * scale))
        solved, before = _weighted(rows, seconds, weights), solved
        scale = _scale(seconds - rows @ solved, rows)
        if scale <= floor or np.allclose(solved, before, rtol=1e-9, atol=floor):
            break
    return solved, scale, seconds - rows @ solved


def _weighted(rows: Array, seconds: Array, weights: Array) -> Array:
    """Solve weighted least squares by its normal equations, which are well conditioned for tokens scaled to -1 … 1."""
    return np.linalg.solve((rows.T * weights) @ rows, rows.T @ (weights * seconds))


def _bisquare(u: Array) -> Array:
    return np.where(abs(u) < 1, (1 - u * u) ** 2, 0.0)


def _scale(residuals: Array, rows: Array) -> float:
    """Estimate the noise's standard deviation from the median |residual|.

    The smallest residuals are skipped, one fewer than there are coefficients: the fit passes through about as many
    points as it has coefficients.
    """
    return float(np.median(np.sort(abs(residuals))[rows.shape[1] - 1 :])) / _NORMAL


def _covariance(rows: Array, residuals: Array, scale: float) -> Array:
    """Return Huber's covariance: K^2 x mean of psi^2 / (mean of psi')^2 x (X'X)^-1."""
    n, p = rows.shape
    if not scale:
        return np.zeros((p, p))
    us = residuals / (_TUNING * scale)
    psi = residuals * _bisquare(us)
    slopes = np.where(abs(us) < 1, (1 - us * us) * (1 - 5 * us * us), 0.0)
    mean = slopes.mean()
    if mean <= 0:
        raise KvvizError("these times spread too much to fit; take more repeats")
    correction = 1 + p / n * slopes.var() / mean**2
    return correction**2 * (psi @ psi) / (n - p) / mean**2 * np.linalg.inv(rows.T @ rows)


def student(freedom: int) -> float:
    """Return the 97.5% point of Student's t: up to 5 degrees of freedom from a table, beyond by its expansion.

    The expansion is in 1 / degrees of freedom (Abramowitz and Stegun 26.7.5; the table is their 26.10).
    """
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    z, n = NormalDist().inv_cdf(0.975), freedom
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3


@dataclass(frozen=True)
class Crossover:
    """The context from which a step with the cache is faster, with its 95% interval.

    `says` is "crosses" (then `token` is set, and so are the ends of the interval that lie within the measured tokens),
    "always" (the cache is faster from the first token measured), "never" (it is slower up to the last one), or
    "untold" (the points can't tell).
    """

    says: str
    token: float | None = None
    low: float | None = None
    high: float | None = None
    sentence: str = ""


def crossover(cached: Fit, uncached: Fit) -> Crossover:
    """Find where the uncached curve rises above the cached one, within the tokens at which both were measured."""
    first, last = math.ceil(max(cached.first, uncached.first)), math.floor(min(cached.last, uncached.last))
    if last <= first:
        raise KvvizError("the two curves were not measured over the same tokens, so they can't be compared")
    tokens = np.arange(first, last + 1)
    gap = polynomial.polysub(uncached.values, cached.values)
    gaps = polynomial.polyval(tokens, gap)
    variances = cached.variance_at(tokens) + uncached.variance_at(tokens)
    unsure = abs(gaps) <= max(cached.quantile, uncached.quantile) * np.sqrt(np.maximum(variances, 0.0))
    signs = np.sign(gaps[~unsure])
    if not unsure.any() and (signs > 0).all():
        return Crossover("always", sentence=f"the cache pays from the first step measured, at {first:,} tokens")
    if not unsure.any() and (signs < 0).all():
        return Crossover("never", sentence=f"the cache does not pay within the {last:,} tokens measured")
    if unsure.all() or not gaps[0] < 0 < gaps[-1] or (np.diff(signs) < 0).any():
        return Crossover("untold", sentence=_untold(first, last, tokens[unsure], signs, sure_at_last=not unsure[-1]))
    token = _root(gap, first, last)
    low: float | None = token
    high: float | None = token
    if unsure.any():
        start, end = tokens[unsure][[0, -1]].tolist()
        low, high = float(start) if start > first else None, float(end) if end < last else None
    said = f"between {low:,.0f} and {high:,.0f}" if low is not None and high is not None else "one end is not measured"
    return Crossover("crosses", token, low, high, f"the cache pays from about {token:,.0f} tokens on ({said})")


def _untold(first: int, last: int, unsure: Array, signs: Array, *, sure_at_last: bool) -> str:
    """Say what can be told although no crossover can: from which context on the cache pays, if it does at the end."""
    if sure_at_last and (signs > 0).all() and unsure[-1] < last:
        start = unsure[-1] + 1
        return f"the cache pays from {start:,} tokens on; below, these points can't tell which mode is faster"
    return f"between {first:,} and {last:,} tokens these points can't tell which mode is faster"


def _root(gap: Array, low: float, high: float) -> float:
    """Find by bisection where a polynomial that is below 0 at `low` and above 0 at `high` rises through 0."""
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if polynomial.polyval(middle, gap) < 0 else (low, middle)
    return float(high)
