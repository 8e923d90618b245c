"""When timed passes are enough: intervals that cover as often as stated, and the reason for which a run stops."""

import statistics
from types import SimpleNamespace

import pytest

from bench.coverage import FEW, NOISES, coverage, measured
from kvviz.device.disturbance import Disturbance
from kvviz.experiments.comparison.comparison_run import TimedPasses
from kvviz.experiments.comparison.enough import MOST, half_width, interval_of, speedup_interval, why_stop
from kvviz.experiments.comparison.spec import ComparisonSpec

DRAWS = 500


@pytest.mark.slow
@pytest.mark.parametrize("most", [FEW, MOST])
@pytest.mark.parametrize("noise", NOISES)
def test_intervals_of_a_sequential_measurement_cover_as_often_as_stated(noise, most):
    """95%, although the number of passes follows from the first ones."""
    assert 0.92 <= coverage(noise, most, DRAWS)[0] <= 0.98


def test_the_interval_holds_the_speedup_that_is_shown():
    for seed in range(300):
        base, own = measured("bursts", seed, FEW)
        low, high = speedup_interval(base, own, first=3)
        assert low <= statistics.median(base) / statistics.median(own) <= high


def test_one_pass_has_no_interval():
    assert speedup_interval([4.0], [1.0], first=3) is None
    assert half_width([0.1], 3) is None
    low, high = speedup_interval([4.0, 4.0], [1.0, 1.0], first=3)
    assert low == pytest.approx(4) == high


CLEAN, BUSY, UNKNOWN = Disturbance(waited=0.0), Disturbance(waited=0.5), Disturbance()


def timed(passes, precision=0.05, budget_s=None, repeats=3, steps=40):
    """A run whose rounds took these (uncached seconds, cached seconds, disturbance)."""
    names = ("uncached", "cached")
    work = ComparisonSpec("mini-gpt2", names, prompt="x", repeats=repeats, precision=precision, budget_s=budget_s)
    tables = {}
    for i, mode in enumerate(names):
        repeats = [[row[i] / steps * (1 + 1e-4 * (k % 5)) for k in range(steps)] for row in passes]
        tables[mode] = TimedPasses(repeats=repeats, disturbances=[row[2] for row in passes])
    return SimpleNamespace(work=work, passes=tables, prompt_tokens=8)


STEADY = [(4.0, 1.0, CLEAN), (4.01, 1.0, CLEAN), (4.0, 1.001, CLEAN)]
WILD = [(4.0, 1.0, CLEAN), (5.0, 0.8, CLEAN), (4.0, 1.4, CLEAN)]


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (timed(STEADY[:2]), ""),
        (timed(STEADY), "What was asked for, 5%, is reached: the speed-up to 0."),
        (timed(STEADY, precision=None), "3 passes of each mode: as many as were asked for."),
        (timed(STEADY[:1], precision=None, repeats=1), "1 pass of each mode: as many as were asked for."),
        (timed(WILD), ""),
        (timed(WILD * 2), "The time for more passes was used up; known are the speed-up to"),
        (timed(WILD, budget_s=0), "The time for more passes was used up"),
        (timed(WILD * 2, budget_s=1000), ""),
        (timed(WILD * 17, budget_s=1e6), f"No mode gets more than {MOST} passes; known are"),
        (timed([(4.0, 1.0, BUSY)] * 3), ""),
        (timed([(4.0, 1.0, UNKNOWN)] * 3), "What was asked for"),
        (timed([*STEADY[:2], (4.4, 1.1, BUSY)]), ""),
        (timed([*STEADY[:2], (4.4, 1.1, BUSY), STEADY[2]]), "What was asked for"),
    ],
)
def test_why_a_run_stops(run, says):
    found = why_stop(run)
    assert found == says if not says else found.startswith(says)


@pytest.mark.parametrize(
    ("base", "own", "told"),
    [
        ([CLEAN] * 3, [CLEAN] * 3, True),
        ([BUSY] * 3, [BUSY] * 3, True),
        ([UNKNOWN] * 3, [CLEAN] * 3, True),
        ([BUSY, CLEAN, CLEAN], [CLEAN] * 3, True),
        ([BUSY, BUSY, CLEAN], [CLEAN] * 3, False),
        ([BUSY] * 3, [BUSY, CLEAN, CLEAN], False),
        ([CLEAN] * 3, [BUSY] * 3, False),
    ],
)
def test_an_interval_needs_two_kept_passes_of_each_mode_and_modes_that_were_disturbed_alike(base, own, told):
    slow, fast = TimedPasses([[4.0], [4.1], [4.2]], base), TimedPasses([[1.0], [1.1], [1.2]], own)
    assert (interval_of(slow, fast, first=3) is not None) == told


def test_figures_leave_disturbed_passes_out_if_there_are_others():
    passes = TimedPasses([[1.0], [9.0], [2.0]], [CLEAN, BUSY, CLEAN])
    assert passes.kept == [[1.0], [2.0]]
    assert passes.totals == [1.0, 2.0]
    assert TimedPasses([[1.0], [9.0]], [CLEAN, BUSY]).totals == [1.0, 9.0], "a single pass has no spread"
    assert TimedPasses([[1.0], [9.0]], [BUSY, BUSY]).kept == [[1.0], [9.0]]


def test_a_pass_that_seemed_quiet_is_judged_again_by_a_disturbed_one_that_is_faster():
    passes = TimedPasses()
    assert [passes.add([1.5, 1.5], CLEAN), passes.add([1.1, 1.1], CLEAN)] == [[0], [1]]
    assert passes.kept == [[1.5, 1.5], [1.1, 1.1]]
    assert passes.add([1.0, 1.0], BUSY) == [0, 2], "the first is known to have been slowed, too"
    assert [found.outrun for found in passes.disturbances] == [1.5, None, None]
    assert passes.kept == [[1.1, 1.1]] and not passes.disturbed
    assert passes.add([0.9, 0.9], BUSY) == [0, 1, 3] and passes.disturbed
    assert len(passes.kept) == 4, "all, as none is known to have been undisturbed"
