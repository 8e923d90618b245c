"""The machine's fastest stretch: kept over processes, by machine, and given up when the machine has become slower."""

import pytest

from kvviz.device import pulse
from kvviz.device.pulse import FEWEST, SETTLED_S, SLOWED, slowed


@pytest.fixture
def clock(monkeypatch, tmp_path):
    monkeypatch.setenv("KVVIZ_HOME", str(tmp_path))
    monkeypatch.setattr(pulse, "machine", lambda: "one")
    now = [1e9]
    monkeypatch.setattr(pulse.time, "time", lambda: now[0])
    return now


def test_a_core_that_is_slow_all_along_is_found_out(clock):
    assert [slowed(1.0), slowed(1.1), slowed(2.0)] == [1.0, 1.1, 2.0]
    clock[0] += 3 * 86_400
    assert slowed(2.0) == 2.0, "also days later, in another process"
    assert slowed(0.5) == 1.0 and slowed(1.0) == 2.0, "a faster stretch counts at once"


def test_a_machine_that_has_become_slower_for_good_gets_clean_passes_again(clock):
    slowed(1.0)
    for _ in range(FEWEST - 1):
        assert slowed(1.6) == 1.6
    clock[0] += SETTLED_S
    assert slowed(1.5) == 1.0, "the fastest of the slow ones counts from now on"
    assert slowed(1.6) == pytest.approx(1.6 / 1.5) and slowed(1.5 * SLOWED) < SLOWED + 1e-9
    for _ in range(FEWEST):
        slowed(3.0)
    clock[0] += SETTLED_S - 1
    assert slowed(3.0) == 2.0, "not before its time"
    slowed(1.5)
    clock[0] += SETTLED_S
    assert slowed(3.0) == 2.0, "one stretch came near: the machine can still do it"
    clock[0] += SETTLED_S
    assert slowed(3.0) == 2.0, "two slow stretches are too few to give it up"


def test_each_machine_has_its_own(clock, monkeypatch, tmp_path):
    slowed(1.0)
    monkeypatch.setattr(pulse, "machine", lambda: "two")
    assert slowed(9.0) == 1.0
    monkeypatch.setattr(pulse, "machine", lambda: "one")
    assert slowed(2.0) == 2.0
    (tmp_path / "pulse.json").write_text('{"kvviz": "pulse", "pulses": [{"machine": "one", "fastest_s": -1}]}')
    assert slowed(2.0) == 1.0, "a file that can't be read counts as none, and is replaced"
    assert slowed(4.0) == 2.0


def test_the_machine_is_named_with_what_its_pulse_depends_on():
    assert ", Python 3." in pulse.machine() and ", torch " in pulse.machine()


def test_where_nothing_can_be_kept_a_stretch_counts_alone(clock, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("KVVIZ_HOME", str(tmp_path / "file"))
    assert [slowed(1.0), slowed(2.0)] == [1.0, 1.0]
