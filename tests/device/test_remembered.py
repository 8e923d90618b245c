"""Figures of the device are measured again when other work disturbed them or a prediction missed, and not for ever."""

import pytest

from kvviz.device import remembered
from kvviz.device.disturbance import Disturbance
from kvviz.device.remembered import AGAIN_S, TRUSTED_S, Remembered


class Machine:
    """A clock, what disturbs each measurement, and the figures that come out."""

    def __init__(self, monkeypatch):
        self.now, self.lost, self.figure, self.measured = 0.0, 0.0, 1.0, 0
        monkeypatch.setattr(remembered, "Watch", lambda: self)
        self.kept = Remembered(lambda one, other: abs(one - other) < 0.1, clock=lambda: self.now)

    def read(self):
        return Disturbance(waited=self.lost)

    def measure(self):
        self.measured += 1
        return self.figure

    def get(self, **changes):
        vars(self).update(changes)
        return self.kept.get(("cpu", "key"), self.measure)


@pytest.fixture
def machine(monkeypatch):
    return Machine(monkeypatch)


def test_an_undisturbed_figure_is_measured_once(machine):
    assert [machine.get(figure=1.0), machine.get(figure=2.0, now=10 * TRUSTED_S)] == [1.0, 1.0]
    assert machine.measured == 1 and not machine.kept.in_doubt


def test_a_disturbed_figure_is_measured_again_until_one_is_clean(machine):
    assert machine.get(figure=9.0, lost=0.5) == 9.0
    assert machine.get(figure=8.0) == 9.0, "not at once"
    assert not machine.kept.in_doubt
    machine.now = AGAIN_S
    assert machine.kept.in_doubt
    assert machine.get(figure=20.0, lost=0.8) == 9.0, "the less disturbed one stands"
    assert machine.get(figure=5.0, lost=0.2, now=2 * AGAIN_S) == 9.0, "a machine that stays busy is asked more seldom"
    assert machine.get(now=3 * AGAIN_S) == 5.0
    assert machine.get(figure=1.0, lost=0.0, now=7 * AGAIN_S) == 1.0
    assert machine.get(figure=2.0, now=9 * AGAIN_S) == 1.0
    assert machine.measured == 4


def test_what_is_in_doubt_is_measured_again_and_nothing_else(machine):
    machine.get(lost=0.5)
    assert machine.kept.get(("cpu", "other"), lambda: 7.0) == 7.0
    machine.kept.refresh()
    assert machine.measured == 1, "not at once"
    machine.now, machine.lost, machine.figure = AGAIN_S, 0.0, 2.0
    machine.kept.refresh()
    assert machine.measured == 2 and not machine.kept.in_doubt
    assert machine.get() == 2.0


def test_a_missed_prediction_has_it_measured_again_unless_it_came_back_the_same(machine):
    assert machine.get(figure=1.0) == 1.0
    machine.kept.doubt()
    assert machine.get(figure=2.0, now=AGAIN_S) == 2.0, "the machine has changed"
    machine.kept.doubt()
    assert machine.get(figure=2.01, now=3 * AGAIN_S) == 2.01
    machine.kept.doubt()
    assert not machine.kept.in_doubt, "it came back the same: the prediction is to blame"
    machine.now = 4 * AGAIN_S + TRUSTED_S
    machine.kept.doubt()
    assert machine.kept.in_doubt


def test_on_a_noisy_machine_a_figure_is_measured_ever_more_seldom(machine):
    """Each prediction misses and each measurement is disturbed: no loop, and the least disturbed figure stands."""
    for second in range(3600):
        machine.get(now=float(second), figure=1.0 + second % 7, lost=0.1 + second % 7)
        machine.kept.doubt()
    assert machine.measured <= 3600 / TRUSTED_S + 6 and machine.get() == 1.0


def test_where_each_prediction_misses_though_the_figures_are_right_they_are_measured_once_in_a_while(machine):
    for second in range(3600):
        machine.get(now=float(second), figure=1.0 + 0.02 * (second % 2), lost=0.0)
        machine.kept.doubt()
    assert machine.measured <= 2 + 3600 / TRUSTED_S, "a figure that came back the same is trusted for a time"


def test_a_read_rate_that_drifted_by_a_tenth_has_the_figures_of_that_device_measured_again(machine):
    machine.kept.hold_against("cpu", 100.0)
    assert machine.get(figure=1.0) == 1.0
    assert machine.kept.get(("cuda", "key"), lambda: 5.0) == 5.0
    machine.now = AGAIN_S
    assert not machine.kept.hold_against("cpu", 109.0) and not machine.kept.in_doubt
    assert not machine.kept.hold_against("cpu", 91.0) and not machine.kept.in_doubt, "each against the rate of then"
    assert machine.kept.hold_against("cpu", 90.0) and machine.kept.in_doubt
    assert machine.get(figure=2.0) == 2.0 and not machine.kept.in_doubt
    assert machine.measured == 2, "the other device's figure stands"
    assert not machine.kept.hold_against("cpu", 90.0), "the new figure belongs to the new rate"
    machine.now = 2 * AGAIN_S
    assert machine.kept.hold_against("cpu", 100.0) and machine.kept.in_doubt, "and back"


def test_a_figure_without_a_read_rate_takes_the_next_one(machine):
    assert machine.get(figure=1.0) == 1.0
    machine.now = AGAIN_S
    assert not machine.kept.hold_against("cpu", 100.0) and not machine.kept.in_doubt
    assert machine.kept.hold_against("cpu", 120.0) and machine.kept.in_doubt


def test_a_read_rate_that_drifts_all_the_time_does_not_have_the_same_figure_measured_over_and_over(machine):
    for second in range(3600):
        machine.kept.hold_against("cpu", 100.0 + 50.0 * (second % 2))
        machine.get(now=float(second), figure=1.0)
    assert machine.measured <= 2 + 3600 / TRUSTED_S


@pytest.mark.parametrize(("lost", "rates", "doubted"), [(0.0, (100.0, 80.0), True), (0.5, (100.0, 80.0), False)])
def test_the_read_before_a_comparison_counts_unless_it_was_disturbed_or_fresh(
    machine, monkeypatch, lost, rates, doubted
):
    monkeypatch.setattr(remembered, "_OF_THIS_PROCESS", [machine.kept])
    monkeypatch.setattr(remembered, "_read_at", {})
    asked = []

    def read(rate, lost=0.0, at=0.0):
        machine.lost = lost
        remembered.hold_figures_against_read("cpu", lambda: asked.append(rate) or rate, lambda: at)
        machine.lost = 0.0

    read(rates[0])
    machine.get(figure=1.0)
    read(rates[1], at=AGAIN_S - 1)
    assert asked == [rates[0]], "no figure is measured more often than that"
    read(None, at=AGAIN_S)
    machine.now = AGAIN_S
    assert not machine.kept.in_doubt, "what was not measured tells nothing"
    read(rates[1], lost, at=AGAIN_S)
    assert machine.kept.in_doubt == doubted
