"""What disturbed a stretch of time: read off the running system, and off files such as other systems have."""

import subprocess
import sys
import time
from collections import deque
from pathlib import Path

import pytest

from kvviz.device import disturbance
from kvviz.device.disturbance import Disturbance, Watch, outrun

SCHEDSTAT = Path("/proc/self/task").is_dir() and Path("/proc/self/schedstat").is_file()


@pytest.mark.skipif(not SCHEDSTAT, reason="this system does not count how long a thread waits for a core")
def test_a_process_on_the_same_core_takes_about_half_of_it():
    code = (
        "import os, subprocess, sys, time\n"
        "from kvviz.device.disturbance import Watch\n"
        "core = sorted(os.sched_getaffinity(0))[-1:]\n"
        "os.sched_setaffinity(0, core)\n"
        "busy = subprocess.Popen([sys.executable, '-c', 'while True: pass'])\n"
        "time.sleep(0.3); watch = Watch(); end = time.perf_counter() + 1\n"
        "while time.perf_counter() < end: pass\n"
        "found = watch.read(); busy.kill(); busy.wait()\n"
        "print(found.waited, found.clean, found.switches)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    waited, clean, switches = out.split()
    assert float(waited) > 0.25
    assert clean == "False"
    assert int(switches) > 0


@pytest.mark.skipif(not SCHEDSTAT, reason="this system does not count how long a thread waits for a core")
def test_a_sleeping_process_waits_for_nothing():
    watch = Watch()
    time.sleep(0.2)
    found = watch.read()
    assert found.waited is not None
    assert found.waited < 0.5, "it asked for no core while it slept"
    assert found.others is None or found.others >= 0


@pytest.mark.parametrize(
    ("found", "lost", "clean"),
    [
        (Disturbance(), None, None),
        (Disturbance(waited=0.01), 0.01, True),
        (Disturbance(waited=0.01, stolen=0.03), 0.04, True),
        (Disturbance(waited=0.04, stolen=0.03), 0.07, False),
        (Disturbance(waited=0.2), 0.2, False),
        (Disturbance(waited=0.0, throttled=0), 0.0, True),
        (Disturbance(waited=0.0, throttled=1), 0.0, False),
        (Disturbance(others=3.0, switches=900), None, None),
        (Disturbance(waited=0.0, slowed=1.1), 0.0, True),
        (Disturbance(waited=0.0, slowed=1.5), 0.0, False),
        (Disturbance(slowed=1.5), None, False),
    ],
)
def test_what_counts_as_disturbed(found, lost, clean):
    assert found.lost == (None if lost is None else pytest.approx(lost))
    assert found.clean is clean


@pytest.mark.parametrize(
    ("seconds", "clean", "times"),
    [
        ([3.0, 2.0, 2.2], [True, True, True], [None, None, None]),
        ([3.0, 2.0, 2.2], [True, False, True], [1.5, None, None]),
        ([3.0, 2.0, 2.2], [None, False, False], [1.5, None, None]),
        ([3.0, 2.0, 2.2], [False, True, False], [1.3636, None, None]),
    ],
)
def test_a_pass_that_a_disturbed_one_outruns_was_slowed_itself(seconds, clean, times):
    assert outrun(seconds, clean) == times
    assert not Disturbance(waited=0.0, outrun=1.5).clean and Disturbance(waited=0.0).clean


def test_a_system_that_tells_nothing_gives_none(monkeypatch):
    monkeypatch.setattr(disturbance, "_waits", lambda: None)
    monkeypatch.setattr(disturbance, "_machine", lambda: (None, None))
    monkeypatch.setattr(disturbance, "_switches", lambda: None)
    monkeypatch.setattr(disturbance, "_throttled", lambda: None)
    assert Watch().read() == Disturbance()


def test_differences_of_two_readings(monkeypatch):
    """Two cores; 2 s of them stolen in 10 s; the thread that waited longest waited 1 s; others used 0.5 cores."""
    at = iter([0.0, 10.0])
    monkeypatch.setattr(disturbance.time, "perf_counter", lambda: next(at))
    monkeypatch.setattr(disturbance.time, "process_time", iter([1.0, 11.0]).__next__)
    waits = iter([{"1": 5, "2": 7}, {"1": 10**9 + 5, "2": 10**8, "3": 9 * 10**9}])
    monkeypatch.setattr(disturbance, "_waits", lambda: next(waits))
    machine = iter([(100.0, 3.0), (115.0, 5.0)])
    monkeypatch.setattr(disturbance, "_machine", lambda: next(machine))
    monkeypatch.setattr(disturbance, "_switches", iter([4, 10]).__next__)
    monkeypatch.setattr(disturbance, "_throttled", iter([None, None]).__next__)
    monkeypatch.setattr(disturbance.os, "cpu_count", lambda: 2)
    found = Watch().read()
    assert found == Disturbance(waited=0.1, stolen=0.1, others=0.5, switches=6, throttled=None)
    assert found.clean is False


def test_a_core_that_runs_slower_shows_in_work_that_is_always_the_same(monkeypatch, tmp_path):
    """A clock by which that work takes 1 s at first, later 2 s, which the machine's fastest stretch shows for good."""
    monkeypatch.setenv("KVVIZ_HOME", str(tmp_path))
    now = [0.0]
    monkeypatch.setattr(disturbance, "_beats", deque())
    monkeypatch.setattr(disturbance.time, "perf_counter", lambda: now[0])

    def watched(seconds, beats=5):
        watch = Watch()
        for _ in range(beats):
            now[0] += 2 * disturbance.BEAT_S
            taken = iter([now[0], now[0], now[0] + seconds])  # the question whether it is due, its start, its end
            monkeypatch.setattr(disturbance.time, "perf_counter", lambda taken=taken: next(taken))
            watch.beat()
            now[0] += seconds
            monkeypatch.setattr(disturbance.time, "perf_counter", lambda: now[0])
            watch.beat()  # a moment later: nothing is timed
        return watch.read()

    assert (watched(1.0).slowed, watched(2.0).slowed) == (1.0, 2.0)
    assert watched(2.0).clean is False
    now[0] += disturbance.RECENT_S
    assert watched(2.0, beats=disturbance.FEW - 1).slowed == 1.0, "too few for the whole machine"
    assert watched(2.0).slowed == 2.0
    assert Watch().read().slowed is None, "no step was taken"
