"""Fits measured latency curves: a + b t with the cache, a + b t + c t^2 without it. Standard library only.

A single step can take ten times as long as its neighbours, so the fit is a robust M-estimate: it starts from least
absolute deviations and then applies Tukey's bisquare, which gives outliers a weight of 0. The 95 % intervals are
Huber's and assume that the noise is independent from step to step; they do not cover a drift over the run. If the
points can't determine a value, the result says so.

Sources: P. J. Huber and E. M. Ronchetti, Robust Statistics, 2nd edition, chapter 7. The crossover's interval holds the
tokens at which the difference can't be told from 0: E. C. Fieller, J. R. Stat. Soc. B 16 (1954).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

from kvviz.base.errors import KvvizError

FEWEST = 8  # points needed per degree; with fewer, the intervals mean nothing
_TUNING = 4.685  # bisquare: on data without spikes the fit is 95 % as efficient as least squares
_NORMAL = 0.6745  # median absolute deviation of a standard normal
_TERMS = ("a", "b", "c")
_ROUNDS = 60

Vector = list[float]
Matrix = list[Vector]


@dataclass(frozen=True)
class Estimate:
    """One coefficient with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def told(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Fit:
    """A polynomial fitted to (token, seconds).

    `coefficients` are a, b (and c); `spread` is the noise's standard deviation in seconds; `points` were fitted, of
    which `spikes` got a weight of 0; `first` and `last` are the range of tokens.
    """

    coefficients: tuple[Estimate, ...]
    spread: float
    points: int
    spikes: int
    first: float
    last: float
    covariance: tuple[tuple[float, ...], ...]
    quantile: float

    def at(self, token: float) -> float:
        """Return the fitted seconds of a step at that context."""
        return sum(row.value * power for row, power in zip(self.coefficients, self._powers(token), strict=True))

    def variance_at(self, token: float) -> float:
        """Return the variance of `at`."""
        powers = self._powers(token)
        return sum(
            powers[i] * powers[j] * self.covariance[i][j] for i in range(len(powers)) for j in range(len(powers))
        )

    def band(self, token: float) -> tuple[float, float]:
        """Return the 95 % interval of `at`."""
        half = self.quantile * math.sqrt(max(self.variance_at(token), 0.0))
        return self.at(token) - half, self.at(token) + half

    def _powers(self, token: float) -> Vector:
        return [token**i for i in range(len(self.coefficients))]

    @property
    def untold(self) -> tuple[str, ...]:
        """Sentences, one for each coefficient whose interval includes 0."""
        return tuple(
            f"can't tell {name} from 0: {row.value:.3g} s, somewhere between {row.low:.3g} and {row.high:.3g}"
            for name, row in zip(_TERMS, self.coefficients, strict=False)
            if not row.told
        )


def fit(tokens: Sequence[float], seconds: Sequence[float], degree: int) -> Fit:
    """Fit a + b t (`degree` 1) or a + b t + c t^2 (2). Raises KvvizError if the points do not allow a fit."""
    _check(tokens, seconds, degree)
    middle = (max(tokens) + min(tokens)) / 2
    half = (max(tokens) - min(tokens)) / 2
    rows = [[((t - middle) / half) ** i for i in range(degree + 1)] for t in tokens]
    solved, scale, residuals = _settled(rows, seconds)
    covariance = _covariance(rows, residuals, scale)
    quantile = student(len(tokens) - degree - 1)
    back = _unscaled(degree, middle, half)
    values = _times(back, solved)
    spread = _product(_product(back, covariance), _transposed(back))
    halves = [quantile * math.sqrt(max(spread[i][i], 0.0)) for i in range(degree + 1)]
    return Fit(
        coefficients=tuple(Estimate(v, v - h, v + h) for v, h in zip(values, halves, strict=True)),
        spread=scale,
        points=len(tokens),
        spikes=sum(abs(r) >= _TUNING * scale for r in residuals) if scale else 0,
        first=min(tokens),
        last=max(tokens),
        covariance=tuple(map(tuple, spread)),
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


def _settled(rows: Matrix, seconds: Sequence[float]) -> tuple[Vector, float, Vector]:
    """Iterate the M-estimate until it converges; return its coefficients, scale and residuals."""
    floor = 1e-12 * max(map(abs, seconds), default=1.0) or 1e-300
    solved = _weighted(rows, seconds, [1.0] * len(rows))
    for _ in range(_ROUNDS):  # weights of 1 / |residual| lead to least absolute deviations
        residuals = _residuals(rows, seconds, solved)
        smallest = max(1e-3 * median(map(abs, residuals)), floor)
        solved, before = _weighted(rows, seconds, [1 / max(abs(r), smallest) for r in residuals]), solved
        if _still(solved, before, floor):
            break
    scale = _scale(_residuals(rows, seconds, solved), len(rows[0]))
    for _ in range(_ROUNDS if scale > floor else 0):
        weights = [_bisquare(r / (_TUNING * scale)) for r in _residuals(rows, seconds, solved)]
        solved, before = _weighted(rows, seconds, weights), solved
        scale = _scale(_residuals(rows, seconds, solved), len(rows[0]))
        if scale <= floor or _still(solved, before, floor):
            break
    return solved, scale, _residuals(rows, seconds, solved)


def _still(now: Vector, before: Vector, floor: float) -> bool:
    return all(abs(x - y) <= 1e-9 * abs(y) + floor for x, y in zip(now, before, strict=True))


def _bisquare(u: float) -> float:
    return (1 - u * u) ** 2 if abs(u) < 1 else 0.0


def _scale(residuals: Vector, taken: int) -> float:
    """Estimate the noise's standard deviation from the median |residual|.

    The `taken` - 1 smallest residuals are skipped, since the fit passes through about as many points as it has
    coefficients.
    """
    left = sorted(map(abs, residuals))[taken - 1 :]
    return median(left) / _NORMAL


def _covariance(rows: Matrix, residuals: Vector, scale: float) -> Matrix:
    """Return Huber's covariance: K^2 x mean of psi^2 / (mean of psi')^2 x (X'X)^-1."""
    n, p = len(rows), len(rows[0])
    plain = _inverse(_gram(rows, [1.0] * n))
    if not scale:
        return [[0.0] * p for _ in range(p)]
    us = [r / (_TUNING * scale) for r in residuals]
    psi = [r * _bisquare(u) for r, u in zip(residuals, us, strict=True)]
    slopes = [(1 - u * u) * (1 - 5 * u * u) if abs(u) < 1 else 0.0 for u in us]
    mean = sum(slopes) / n
    if mean <= 0:
        raise KvvizError("these times spread too much to fit; take more repeats")
    correction = 1 + p / n * (sum((s - mean) ** 2 for s in slopes) / n) / mean**2
    factor = correction**2 * sum(v * v for v in psi) / (n - p) / mean**2
    return [[factor * value for value in row] for row in plain]


def student(freedom: int) -> float:
    """Return the 97.5 % point of Student's t, expanded in 1 / degrees of freedom (Abramowitz and Stegun 26.7.5)."""
    z, n = NormalDist().inv_cdf(0.975), max(freedom, 1)
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )


@dataclass(frozen=True)
class Crossover:
    """The context from which a step with the cache is faster, with its 95 % interval.

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
    signs = [_sign(cached, uncached, token) for token in range(first, last + 1)]
    if all(sign > 0 for sign in signs):
        return Crossover("always", sentence=f"the cache pays from the first step measured, at {first:,} tokens")
    if all(sign < 0 for sign in signs):
        return Crossover("never", sentence=f"the cache does not pay within the {last:,} tokens measured")
    token = _root(cached, uncached, first, last)
    unsure = [first + i for i, sign in enumerate(signs) if sign == 0]
    if token is None or len(unsure) == len(signs) or not _once(signs):
        return Crossover("untold", sentence=f"between {first:,} and {last:,} tokens these points can't tell which wins")
    low = float(unsure[0]) if unsure and unsure[0] > first else (None if unsure else token)
    high = float(unsure[-1]) if unsure and unsure[-1] < last else (None if unsure else token)
    said = f"between {low:,.0f} and {high:,.0f}" if low is not None and high is not None else "one end is not measured"
    return Crossover("crosses", token, low, high, f"the cache pays from about {token:,.0f} tokens on ({said})")


def _sign(cached: Fit, uncached: Fit, token: float) -> int:
    """Return 1 if the uncached step is slower at this token, -1 if it is faster, 0 if the fits can't tell."""
    gap = uncached.at(token) - cached.at(token)
    half = max(cached.quantile, uncached.quantile) * math.sqrt(
        max(cached.variance_at(token) + uncached.variance_at(token), 0.0)
    )
    return 0 if abs(gap) <= half else (1 if gap > 0 else -1)


def _once(signs: Sequence[int]) -> bool:
    """Whether the nonzero signs change at most once, from -1 to 1."""
    told = [sign for sign in signs if sign]
    return told == sorted(told)


def _root(cached: Fit, uncached: Fit, first: float, last: float) -> float | None:
    """Find where uncached minus cached rises through 0; return None if it does not within the range."""

    def gap(token: float) -> float:
        return uncached.at(token) - cached.at(token)

    low, high = float(first), float(last)
    if gap(low) >= 0 or gap(high) <= 0:
        return None
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if gap(middle) < 0 else (low, middle)
    return high


def _residuals(rows: Matrix, seconds: Sequence[float], solved: Vector) -> Vector:
    return [y - sum(x * v for x, v in zip(row, solved, strict=True)) for row, y in zip(rows, seconds, strict=True)]


def _weighted(rows: Matrix, seconds: Sequence[float], weights: Vector) -> Vector:
    """Solve weighted least squares by its normal equations, which are well conditioned for tokens scaled to -1 … 1."""
    p = len(rows[0])
    right = [sum(w * row[i] * y for w, row, y in zip(weights, rows, seconds, strict=True)) for i in range(p)]
    return _times(_inverse(_gram(rows, weights)), right)


def _gram(rows: Matrix, weights: Vector) -> Matrix:
    p = len(rows[0])
    return [[sum(w * r[i] * r[j] for w, r in zip(weights, rows, strict=True)) for j in range(p)] for i in range(p)]


def _inverse(matrix: Matrix) -> Matrix:
    """Invert a matrix of 2 or 3 rows by elimination. Raises KvvizError if it is singular."""
    n = len(matrix)
    work = [[*row, *(float(i == j) for j in range(n))] for i, row in enumerate(matrix)]
    for i in range(n):
        best = max(range(i, n), key=lambda k: abs(work[k][i]))
        work[i], work[best] = work[best], work[i]
        if abs(work[i][i]) < 1e-300:
            raise KvvizError("too few of these steps are alike enough to fit; take more repeats")
        work[i] = [value / work[i][i] for value in work[i]]
        for k in range(n):
            if k != i:
                work[k] = [x - work[k][i] * y for x, y in zip(work[k], work[i], strict=True)]
    return [row[n:] for row in work]


def _unscaled(degree: int, middle: float, half: float) -> Matrix:
    """Return the matrix that maps coefficients in (t - middle) / half to coefficients in t; its rows are 1, t, t^2."""
    rows = [[0.0] * (degree + 1) for _ in range(degree + 1)]
    for power in range(degree + 1):  # ((t - m) / h)^power expanded
        for i in range(power + 1):
            rows[i][power] = math.comb(power, i) * (-middle) ** (power - i) / half**power
    return rows


def _times(matrix: Matrix, vector: Vector) -> Vector:
    return [sum(x * v for x, v in zip(row, vector, strict=True)) for row in matrix]


def _product(left: Matrix, right: Matrix) -> Matrix:
    return [
        [sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*right, strict=True)] for row in left
    ]


def _transposed(matrix: Matrix) -> Matrix:
    return [list(column) for column in zip(*matrix, strict=True)]
