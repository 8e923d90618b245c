"""A shape is said only where an interval bears it out: a table of cases, and random points against a slow reading."""

import random
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.experiments.comparison.curve_fit import Estimate, fit
from kvviz.experiments.shapes import FLAT, SURE, alike, flat, power, shape, slope
from tests.draws import draws

XS = (8, 32, 128, 512)


@pytest.mark.parametrize(
    ("ys", "said"),
    [
        ((5.0, 5.0, 5.0, 5.0), True),
        ((5.0, 5.01, 4.99, 5.02), True),
        ((5.0, 5.4, 4.6, 5.1), False),  # within 20%, but so scattered that a climb can't be ruled out
        ((5.0, 5.1, 5.2, 5.6), False),  # a climb of 12%
        ((5.0, 5.0), False),  # two points have no interval
    ],
)
def test_what_may_be_called_flat(ys, said):
    assert flat(XS[: len(ys)], ys) is said


@pytest.mark.parametrize(
    ("here", "there", "same"),
    [
        ((1.0, 0.0), (1.0, 0.0), True),
        ((1.0, 0.05), (1.1, 0.06), True),
        ((1.0, 0.05), (1.2, 0.06), False),
        ((1.0, 0.4), (1.2, 0.5), None),  # they overlap, but so wide that 0.7 and 1.6 would, too
        ((1.0, 0.4), (2.0, 0.5), False),
        (None, (1.0, 0.0), None),
    ],
)
def test_when_two_powers_are_the_same(here, there, same):
    estimates = [pair and Estimate(pair[0], pair[0] - pair[1], pair[0] + pair[1]) for pair in (here, there)]
    assert alike(*estimates) is same is alike(*reversed(estimates))


def test_a_power_comes_back_from_exact_points():
    found = power(XS, [3 * x**1.5 for x in XS])
    assert found.value == pytest.approx(1.5) and found.high - found.low < 1e-9
    assert power(XS, (1.0, 0.0, 2.0, 3.0)) is None and slope((1, 1, 2), (1.0, 2.0, 3.0)) is None


@cache
def slow_student(free):
    """The 97.5% point of Student's t, summed up from its density in the angle whose tangent is t / sqrt(free)."""
    angles = np.linspace(0, np.pi / 2, 100_001)
    areas = np.cumsum(np.cos((angles[1:] + angles[:-1]) / 2) ** (free - 1))
    return float(np.sqrt(free) * np.tan(angles[1:][np.searchsorted(areas, 0.95 * areas[-1])]))


def slow_slope(xs, ys):
    """Slope and half interval by numpy's least squares and the inverse of the normal matrix."""
    rows = np.column_stack([np.ones(len(xs)), xs])
    (start, value), *_ = np.linalg.lstsq(rows, np.array(ys), rcond=None)
    left = np.array(ys) - start - value * np.array(xs)
    variance = (left @ left) / (len(xs) - 2) * np.linalg.inv(rows.T @ rows)[1, 1]
    return float(value), slow_student(len(xs) - 2) * float(np.sqrt(variance))


points = st.integers(3, 7).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(1, 4096), min_size=n, max_size=n, unique=True).map(sorted),
        st.lists(st.floats(0.8, 1.3), min_size=n, max_size=n),
        st.sampled_from((0.0, 0.05, 0.5, 1.0)),
    )
)


@draws(60)
@given(points, points)
def test_random_points_are_said_to_be_what_a_slow_reading_finds(one, other):
    estimates, read = [], []
    for xs, noise, steep in (one, other):
        ys = [x**steep * (1 + (n - 1) / 10) for x, n in zip(xs, noise, strict=True)]
        value, half = slow_slope(xs, ys)
        room = 0.1 * sorted(ys)[len(ys) // 2] if len(ys) % 2 else 0.1 * sum(sorted(ys)[len(ys) // 2 - 1 :][:2]) / 2
        change = max(abs(value + half), abs(value - half)) * (xs[-1] - xs[0])
        if abs(change - room) > 1e-3 * room:
            assert flat(xs, ys) is (change < room)
        estimates.append(power(xs, ys))
        read.append(slow_slope(np.log(xs), np.log(ys)))
    (a, h), (b, k) = read
    overlap = abs(a - b) - (h + k)
    if abs(overlap) > 1e-3 * (h + k) + 1e-8 and abs(h + k - SURE) > 1e-3:
        assert alike(*estimates) is (False if overlap > 0 else True if h + k <= SURE else None)


def test_a_curve_that_changes_by_a_tenth_is_seldom_called_flat():
    """In at most 5% of noisy curves that climb by just more than FLAT, and in most of those that don't climb."""
    tokens, wrong, right = list(range(100, 164)), 0, 0
    for seed in range(100):
        draw = random.Random(seed)
        for climb in (1.02 * FLAT, 0.0):
            steps = [1 + climb * (t - 131.5) / 63 + draw.gauss(0, 0.03) for t in tokens]
            called = shape(fit(tokens, steps, 1), 1.0)
            wrong, right = wrong + (climb > 0 and called == "flat"), right + (climb == 0 and called == "flat")
    assert wrong <= 5 and right >= 90


@pytest.mark.parametrize(
    ("curve", "degree", "said"),
    [
        (lambda t: 1 + t / 100, 1, "climb"),
        (lambda t: 3 - t / 100, 1, "fall"),
        (lambda t: 1 + t * t / 1e4, 2, "climb"),
        (lambda t: 1 + t / 1e4, 1, "flat"),
        (lambda t: 1 + (t - 50) ** 2 / 5000, 2, None),  # ends where it began, and is half as high again between
    ],
)
def test_the_shape_of_a_fitted_curve(curve, degree, said):
    draw, tokens = random.Random(1), range(1, 100)
    steps = [curve(t) + draw.gauss(0, 0.01) for t in tokens]
    assert shape(fit(tokens, steps, degree), sorted(steps)[49]) == said
