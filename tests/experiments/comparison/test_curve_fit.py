"""The verdict's fit: known curves come back within their intervals, and what can't be told is said."""

import random
import re

import pytest
from numpy.polynomial import polynomial

from kvviz.base.errors import KvvizError
from kvviz.experiments.comparison.curve_fit import crossover, fit, student

DRAWS = 90
TOKENS = list(range(16, 112, 2))


def noisy(seed, curve, noise, spikes=0.05):
    """Times of a curve with normal noise, some of them tenfold."""
    draw = random.Random(seed)
    return [(curve(t) + draw.gauss(0, noise)) * (10 if draw.random() < spikes else 1) for t in TOKENS]


def line(t):
    return 2e-3 + 4e-6 * t


def parabola(t):
    return 1e-3 + 5e-5 * t + 2e-7 * t * t


@pytest.mark.slow
@pytest.mark.parametrize(("curve", "known"), [(line, (2e-3, 4e-6)), (parabola, (1e-3, 5e-5, 2e-7))], ids=["1", "2"])
@pytest.mark.parametrize("spikes", [0.0, 0.06])
def test_known_coefficients_lie_in_their_intervals_as_often_as_stated(curve, known, spikes):
    inside = [0] * len(known)
    for seed in range(DRAWS):
        found = fit(TOKENS, noisy(seed, curve, 1e-4, spikes), len(known) - 1)
        for i, (row, value) in enumerate(zip(found.coefficients, known, strict=True)):
            inside[i] += row.low <= value <= row.high
    for count in inside:
        assert 0.89 <= count / DRAWS <= 0.992, f"{inside} of {DRAWS}"


def test_an_exact_curve_comes_back_exactly():
    found = fit(TOKENS, [parabola(t) for t in TOKENS], 2)
    assert [row.value for row in found.coefficients] == pytest.approx([1e-3, 5e-5, 2e-7], rel=1e-6)
    assert polynomial.polyval(50, found.values) == pytest.approx(parabola(50))
    assert all(row.told for row in found.coefficients)


def test_spikes_are_counted_and_move_nothing():
    times = noisy(3, line, 2e-5, 0)
    for i in (5, 20, 33):
        times[i] *= 10
    clean, spiked = fit(TOKENS, noisy(3, line, 2e-5, 0), 1), fit(TOKENS, times, 1)
    assert spiked.spikes >= 3 and clean.spikes <= 1
    for i in range(2):
        assert spiked.coefficients[i].value == pytest.approx(clean.coefficients[i].value, rel=0.05)


def test_a_slope_that_drowns_in_noise_is_not_told():
    found = fit(TOKENS, noisy(1, line, 5e-3, 0), 1)
    assert not found.coefficients[1].told
    assert all(row.told for row in fit(TOKENS, noisy(1, line, 1e-6, 0), 1).coefficients)


@pytest.mark.slow
@pytest.mark.parametrize("points", [8, pytest.param(16, marks=pytest.mark.long)])
def test_of_few_points_too_a_flat_curve_gets_no_slope_as_often_as_stated(points):
    """A slope of 0 in its 95% interval is a slope that is not told."""
    flat = [noisy(seed, lambda t: 2e-3, 1e-4, 0)[:points] for seed in range(6 * DRAWS)]
    told = sum(fit(TOKENS[:points], times, 1).coefficients[1].told for times in flat)
    assert 0.02 <= told / len(flat) <= 0.08


@pytest.mark.parametrize(
    ("tokens", "seconds", "degree", "says"),
    [
        ([1, 2, 3], [1, 2, 3], 1, "3 steps are too few to fit; decode at least 8 tokens"),
        (list(range(12)), [1.0] * 12, 2, "12 steps are too few to fit; decode at least 16 tokens"),
        ([5] * 20, [1.0] * 20, 1, "1 steps are too few"),
        (list(range(20)), [1.0] * 19, 1, "20 tokens and 19 times"),
        (list(range(20)), [float("nan")] * 20, 1, "no finite number"),
        (list(range(20)), [1.0] * 20, 3, "degree is 3"),
    ],
)
def test_what_can_not_be_fitted_is_refused(tokens, seconds, degree, says):
    with pytest.raises(KvvizError, match=says):
        fit(tokens, seconds, degree)


@pytest.mark.slow
def test_the_crossover_lies_in_its_interval_as_often_as_stated():
    def slow(t):  # meets the line at t = 50
        return line(t) + (t - 50) * 2e-5

    inside, seen = 0, 0
    for seed in range(DRAWS):
        meets = crossover(fit(TOKENS, noisy(seed, line, 5e-5), 1), fit(TOKENS, noisy(seed + 999, slow, 5e-5), 2))
        assert meets.says == "crosses"
        seen += meets.low is not None and meets.high is not None
        inside += (meets.low is None or meets.low <= 50.5) and (meets.high is None or meets.high >= 49.5)
    assert seen > 0.9 * DRAWS
    assert inside / DRAWS >= 0.89


def test_curves_that_start_together_and_part_are_told_apart_from_where_they_have_parted():
    told = []
    for seed in range(20):
        parting = fit(TOKENS, noisy(seed + 50, lambda t: line(t) + 3e-7 * (t - 16) ** 2, 1e-4, 0), 2)
        found = crossover(fit(TOKENS, noisy(seed, line, 1e-4, 0), 1), parting)
        told += [found.sentence] if found.says == "untold" else []
    assert len(told) > 2, "in the others the noise sets the fitted start apart"
    for sentence in told:
        token = int(re.match(r"the cache pays from (\d+) tokens on; below", sentence).group(1))
        assert 20 < token < 100, "by then they differ by some of the noise's standard deviations"


def test_where_there_is_no_crossover_it_says_why():
    cheap = fit(TOKENS, noisy(1, line, 1e-5), 1)
    dear = fit(TOKENS, noisy(2, parabola, 1e-5), 2)
    above = fit(TOKENS, noisy(2, lambda t: line(t) + 1e-3, 1e-5), 2)
    below = fit(TOKENS, noisy(2, lambda t: line(t) - 1e-3, 1e-5), 2)
    same = fit(TOKENS, noisy(5, line, 1e-4), 2)
    assert crossover(cheap, above).says == "always"
    assert crossover(cheap, below).says == "never"
    assert crossover(cheap, same).says == "untold"
    assert crossover(cheap, dear).says == "crosses"
    with pytest.raises(KvvizError, match="not measured over the same tokens"):
        crossover(cheap, fit([t + 1000 for t in TOKENS], noisy(1, line, 1e-5), 2))


def test_the_quantile_is_students():
    assert [student(n) for n in (5, 10, 30)] == pytest.approx([2.5706, 2.2281, 2.0423], rel=2e-3)
