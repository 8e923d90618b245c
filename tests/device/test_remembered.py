"""Figures of the device are measured again when other work disturbed them or a prediction missed, and not for ever."""

import pytest

from kvviz.device import remembered
from kvviz.device.disturbance import Disturbance
from kvviz.device.remembered import AGAIN_S, TRUSTED_S, Remembered

pytestmark = pytest.mark.usefixtures("own_paces")


class Machine:
    """A clock, what disturbs each measurement, and the figures that come out."""

    def __init__(self, monkeypatch):
        self.now, self.lost, self.figure, self.measured = 0.0, 0.0, 1.0, 0
        self.other_works = False
        monkeypatch.setattr(remembered, "Watch", lambda: self)
        monkeypatch.setattr(remembered, "named_worker", lambda: "cpu:0")
        monkeypatch.setattr(remembered, "measured_beside", lambda worker, since: self.other_works)
        self.kept = Remembered(lambda one, other: abs(one - other) < 0.1, clock=lambda: self.now)

    def read(self):
        return Disturbance(waited=self.lost)

    def measure(self):
        self.measured += 1
        return self.figure

    @property
    def is_due(self):
        return self.kept.due_in() == 0

    def get(self, **changes):
        vars(self).update(changes)
        return self.kept.get(("cpu", "key"), self.measure)


@pytest.fixture
def machine(monkeypatch):
    return Machine(monkeypatch)


def test_an_undisturbed_figure_is_measured_once(machine):
    assert [machine.get(figure=1.0), machine.get(figure=2.0, now=10 * TRUSTED_S)] == [1.0, 1.0]
    assert machine.measured == 1 and machine.kept.due_in() is None


def test_a_disturbed_figure_is_measured_again_until_one_is_clean(machine):
    assert machine.get(figure=9.0, lost=0.5) == 9.0
    assert machine.get(figure=8.0) == 9.0, "not at once"
    assert machine.kept.due_in() == AGAIN_S
    machine.now = AGAIN_S
    assert machine.is_due
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
    assert machine.measured == 2 and not machine.is_due
    assert machine.get() == 2.0


def test_a_missed_prediction_has_it_measured_again_unless_it_came_back_the_same(machine):
    assert machine.get(figure=1.0) == 1.0
    machine.kept.doubt()
    assert machine.get(figure=2.0, now=AGAIN_S) == 2.0, "the machine has changed"
    machine.kept.doubt()
    assert machine.get(figure=2.01, now=3 * AGAIN_S) == 2.01
    machine.kept.doubt()
    assert not machine.is_due, "it came back the same: the prediction is to blame"
    machine.now = 4 * AGAIN_S + TRUSTED_S
    machine.kept.doubt()
    assert machine.is_due


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
    kept = machine.kept
    kept.hold_against("cpu", 100.0)
    assert machine.get(figure=1.0) == 1.0
    assert kept.get(("cuda", "key"), lambda: 5.0) == 5.0
    machine.now = AGAIN_S
    for near in (109.0, 91.0):
        kept.hold_against("cpu", near)
        assert not kept.drifts("cpu", near) and not machine.is_due, "each against the rate of then"
    kept.hold_against("cpu", 90.0)
    assert kept.drifts("cpu", 90.0) and not kept.drifts("cuda", 90.0) and machine.is_due
    kept.refresh()
    assert machine.measured == 2 and not machine.is_due, "the other device's figure stands"
    kept.hold_against("cpu", 90.0)
    assert not machine.is_due, "the new figure belongs to the new rate"


def test_no_run_waits_for_a_figure_that_only_drifted(machine):
    machine.kept.hold_against("cpu", 100.0)
    assert machine.get(figure=1.0) == 1.0
    machine.kept.hold_against("cpu", 50.0)
    assert machine.get(figure=2.0, now=AGAIN_S) == 1.0 and machine.measured == 1
    machine.kept.refresh()
    assert machine.get() == 2.0 and machine.measured == 2, "the idle worker measures it"
    machine.kept.hold_against("cpu", 100.0)
    machine.kept.doubt()
    assert machine.get(figure=3.0, now=2 * AGAIN_S) == 3.0, "a prediction that missed is another matter"


def test_a_drift_that_has_passed_is_forgotten(machine):
    machine.kept.hold_against("cpu", 100.0)
    machine.get(figure=1.0)
    machine.now = AGAIN_S
    machine.kept.hold_against("cpu", 50.0)
    assert machine.is_due
    machine.kept.hold_against("cpu", None)
    assert machine.is_due, "an unknown rate tells nothing"
    machine.kept.hold_against("cpu", 100.0)
    assert not machine.is_due


def test_a_figure_without_a_read_rate_takes_the_next_one(machine):
    machine.kept.hold_against("cpu", 70.0)
    machine.kept.hold_against("cpu", None)
    assert machine.get(figure=1.0) == 1.0
    machine.now = AGAIN_S
    machine.kept.hold_against("cpu", 100.0)
    assert not machine.is_due
    machine.kept.hold_against("cpu", 120.0)
    assert machine.is_due


def test_a_read_rate_that_drifts_all_the_time_does_not_have_the_same_figure_measured_over_and_over(machine):
    for second in range(3600):
        machine.kept.hold_against("cpu", 100.0 + 50.0 * (second % 2))
        machine.get(now=float(second), figure=1.0)
        machine.kept.refresh()
    assert 3 <= machine.measured <= 2 + 3600 / TRUSTED_S


@pytest.fixture(autouse=True)
def usual_wait(monkeypatch):
    """Elsewhere in the tests nothing is measured again."""
    monkeypatch.setattr(remembered, "AGAIN_S", AGAIN_S)


class Memory:
    """A device's memory whose looks take the given read rates, each with the share of its time that was lost."""

    def __init__(self, machine, monkeypatch):
        self.machine, self.looks = machine, []
        for name, value in (("_OF_THIS_PROCESS", [machine.kept]), ("_read_at", {}), ("_readers", {})):
            monkeypatch.setattr(remembered, name, value)

    def read(self):
        rate, self.machine.lost = self.looks.pop(0)
        return rate

    def will_be(self, *looks):
        self.looks = [look if isinstance(look, tuple) else (look, 0.0) for look in looks]

    def hold(self, *looks):
        """Hold the figures against these looks before a run, and return how many of them were not taken."""
        self.will_be(*looks)
        remembered.hold_figures_against_read("cpu", self.read, lambda: self.machine.now)
        self.machine.lost = 0.0
        return len(self.looks)


@pytest.fixture
def memory(machine, monkeypatch):
    return Memory(machine, monkeypatch)


@pytest.mark.parametrize(
    ("looks", "in_doubt"),
    [
        ((80.0, 80.0), True),
        ((130.0, 130.0), True),
        ((80.0, 99.0), False),
        ((80.0, (80.0, 0.5)), False),
        ((80.0, None), False),
        ((95.0,), False),
        (((80.0, 0.5),), False),
        ((None,), False),
    ],
)
def test_a_drift_counts_only_if_a_second_undisturbed_look_has_it_too(machine, memory, looks, in_doubt):
    memory.hold(100.0)
    machine.get(figure=1.0)
    machine.now = AGAIN_S
    assert memory.hold(*looks) == 0 and machine.is_due == in_doubt


def test_the_memory_is_not_read_more_often_than_a_figure_is_measured_unless_it_could_not_be_told(machine, memory):
    memory.hold(100.0)
    machine.get(figure=1.0)
    machine.now = AGAIN_S - 1
    assert memory.hold(50.0) == 1
    machine.now = AGAIN_S
    assert memory.hold((100.0, 0.5)) == 0 == memory.hold(100.0) and memory.hold(100.0) == 1


def test_a_figure_that_is_measured_while_idle_belongs_to_the_read_rate_of_then(machine, memory):
    memory.hold(100.0)
    machine.get(figure=1.0)
    machine.now = AGAIN_S
    machine.kept.doubt()
    memory.will_be(60.0, 60.0)
    machine.figure = 2.0
    remembered.refresh_figures()
    assert machine.measured == 2 and not memory.looks
    machine.now = 2 * AGAIN_S
    memory.hold(60.0)
    assert not machine.is_due, "60 is the rate that it was measured at"
    machine.now = 3 * AGAIN_S
    assert memory.hold(100.0, 100.0) == 0 and machine.is_due


def test_a_drift_that_is_over_when_the_worker_is_idle_has_nothing_measured(machine, memory):
    memory.hold(100.0)
    machine.get(figure=1.0)
    machine.now = AGAIN_S
    memory.hold(60.0, 60.0)
    assert remembered.figures_due_in() == 0
    memory.will_be(98.0)
    remembered.refresh_figures()
    assert machine.measured == 1 and remembered.figures_due_in() is None


def test_on_a_busy_machine_nothing_is_measured_again_before_it_has_waited_for_long(machine, memory):
    memory.hold(100.0)
    machine.get(figure=1.0)
    machine.kept.doubt()
    waits = []
    while machine.measured == 1:
        machine.now += machine.kept.due_in()
        memory.will_be((100.0, 0.5))
        remembered.refresh_figures()
        waits.append(machine.kept.due_in())
    assert waits[:-1] == [2 * AGAIN_S, 4 * AGAIN_S, 8 * AGAIN_S, 16 * AGAIN_S, TRUSTED_S]
    machine.kept.doubt()
    machine.now += TRUSTED_S
    memory.will_be(100.0)
    machine.lost = 0.0
    remembered.refresh_figures()
    assert machine.measured == 3, "a quiet one is measured as soon as it is due"


def test_a_job_comes_before_the_read_of_a_refresh(machine, memory):
    def wanted():
        raise InterruptedError

    memory.hold(100.0)
    memory.will_be(100.0)
    with pytest.raises(InterruptedError):
        remembered.refresh_figures(wanted)
    assert len(memory.looks) == 1


def test_no_run_measures_a_figure_again_beside_another_worker_and_what_is_measured_then_is_in_doubt(machine):
    assert machine.get(figure=1.0, other_works=True) == 1.0 and machine.measured == 1, "a first figure is needed"
    assert machine.get(figure=2.0, now=AGAIN_S) == 1.0 and machine.measured == 1
    assert machine.get(other_works=False) == 2.0
    assert machine.get(figure=3.0, now=3 * AGAIN_S) == 2.0


def test_another_worker_that_reads_the_same_memory_casts_no_doubt(machine, memory):
    memory.hold(100.0)
    machine.get(figure=1.0)
    machine.now, machine.other_works = AGAIN_S, True
    assert memory.hold(50.0, 50.0) == 2, "the memory is not even read"
    remembered.doubt_figures(0.0)
    assert not machine.is_due
    machine.other_works = False
    remembered.doubt_figures(0.0)
    assert machine.is_due
    assert memory.hold(50.0, 50.0) == 0


def test_a_look_during_which_another_worker_began_tells_nothing(machine, memory):
    def read():
        machine.other_works = True
        return 50.0

    memory.hold(100.0)
    machine.get(figure=1.0)
    machine.now = AGAIN_S
    remembered.hold_figures_against_read("cpu", read, lambda: machine.now)
    assert not machine.is_due


def test_a_figure_that_another_worker_came_to_share_does_not_replace_one_that_was_measured_alone(machine):
    assert machine.get(figure=1.0) == 1.0
    machine.kept.doubt()
    machine.now = AGAIN_S

    def beside():
        machine.other_works = True  # it begins during the measurement
        return 5.0

    assert machine.kept.get(("cpu", "key"), beside) == 1.0
