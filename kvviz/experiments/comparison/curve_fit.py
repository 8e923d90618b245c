"""What a measured curve says: a + b t for a step with the cache, a + b t + c t^2 without. Standard library only.

Single steps spike tenfold, so the fit is an M-estimate: least absolute deviations first, then Tukey's bisquare, whose
weights of far points are 0. Intervals are Huber's, at 95 %, for noise that is independent from step to step; a drift
over the run is not in them. What the points can't tell is said, not guessed.

Sources: P. J. Huber and E. M. Ronchetti, Robust Statistics, 2nd edition, chapter 7; for the crossover's interval
E. C. Fieller, J. R. Stat. Soc. B 16 (1954): the tokens at which the difference can't be told from 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

from kvviz.base.errors import KvvizError

FEWEST = 8  # points for each coefficient's interval to mean anything
_TUNING = 4.685  # bisquare: 95 % as efficient as least squares where there are no spikes
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
        """Whether it can be told from 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Fit:
    """A polynomial through (token, seconds): `coefficients` a, b(, c), the noise's `spread` (seconds, one standard

    deviation), how many points it is from, how many of them it took for spikes, and the range of tokens they are from.
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
        """Seconds of a step at that context, by the fit."""
        return sum(row.value * power for row, power in zip(self.coefficients, self._powers(token), strict=True))

    def variance_at(self, token: float) -> float:
        """Variance of `at`."""
        powers = self._powers(token)
        return sum(
            powers[i] * powers[j] * self.covariance[i][j] for i in range(len(powers)) for j in range(len(powers))
        )

    def band(self, token: float) -> tuple[float, float]:
        """The 95 % interval of `at`."""
        half = self.quantile * math.sqrt(max(self.variance_at(token), 0.0))
        return self.at(token) - half, self.at(token) + half

    def _powers(self, token: float) -> Vector:
        return [token**i for i in range(len(self.coefficients))]

    @property
    def untold(self) -> tuple[str, ...]:
        """A sentence for each coefficient that these points can't tell from 0."""
        return tuple(
            f"can't tell {name} from 0: {row.value:.3g} s, somewhere between {row.low:.3g} and {row.high:.3g}"
            for name, row in zip(_TERMS, self.coefficients, strict=False)
            if not row.told
        )


def fit(tokens: Sequence[float], seconds: Sequence[float], degree: int) -> Fit:
    """Fit a + b t (`degree` 1) or a + b t + c t^2 (2). Raises KvvizError where the points can't carry it."""
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
    """Coefficients, scale and residuals of the M-estimate."""
    floor = 1e-12 * max(map(abs, seconds), default=1.0) or 1e-300
    solved = _weighted(rows, seconds, [1.0] * len(rows))
    for _ in range(_ROUNDS):  # least absolute deviations, by weights of 1 / |residual|
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
    """The noise's standard deviation by the median of the |residuals|, without those that the fit passes through."""
    left = sorted(map(abs, residuals))[taken - 1 :]
    return median(left) / _NORMAL


def _covariance(rows: Matrix, residuals: Vector, scale: float) -> Matrix:
    """Huber's: K^2 x mean of psi^2 / (mean of psi')^2 x (X'X)^-1."""
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
    """The 97.5 % point of Student's t, by the expansion in 1 / degrees of freedom (Abramowitz and Stegun 26.7.5)."""
    z, n = NormalDist().inv_cdf(0.975), max(freedom, 1)
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )


@dataclass(frozen=True)
class Crossover:
    """The context from which on a step with the cache is the faster one, with its 95 % interval.

    `says`: crosses (then `token` is there, and as much of the interval as the points reach), always (from the first
    token measured), never (up to the last one), or untold.
    """

    says: str
    token: float | None = None
    low: float | None = None
    high: float | None = None
    sentence: str = ""


def crossover(cached: Fit, uncached: Fit) -> Crossover:
    """Where the uncached curve rises above the cached one, within the tokens that both were measured at."""
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
    """1 where the uncached step is the slower one, -1 where it is the faster one, 0 where that can't be told."""
    gap = uncached.at(token) - cached.at(token)
    half = max(cached.quantile, uncached.quantile) * math.sqrt(
        max(cached.variance_at(token) + uncached.variance_at(token), 0.0)
    )
    return 0 if abs(gap) <= half else (1 if gap > 0 else -1)


def _once(signs: Sequence[int]) -> bool:
    """Whether the told signs change no more than once, and upwards."""
    told = [sign for sign in signs if sign]
    return told == sorted(told)


def _root(cached: Fit, uncached: Fit, first: float, last: float) -> float | None:
    """Where the difference of the two becomes 0, upwards; None where it does not, in the range."""

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
    """Weighted least squares by its normal equations; the tokens are scaled to -1 … 1, so they are well behaved."""
    p = len(rows[0])
    right = [sum(w * row[i] * y for w, row, y in zip(weights, rows, seconds, strict=True)) for i in range(p)]
    return _times(_inverse(_gram(rows, weights)), right)


def _gram(rows: Matrix, weights: Vector) -> Matrix:
    p = len(rows[0])
    return [[sum(w * r[i] * r[j] for w, r in zip(weights, rows, strict=True)) for j in range(p)] for i in range(p)]


def _inverse(matrix: Matrix) -> Matrix:
    """Of a matrix of 2 or 3 rows, by elimination. Raises KvvizError where it has none."""
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
    """From the coefficients in (t - middle) / half to those in t: the rows are 1, t, t^2."""
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
