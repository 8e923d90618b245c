"""Looks beside what is timed: at once, again and again, and over with it."""

import threading
from types import SimpleNamespace

import pytest

from kvviz.decoding.endpoint import poll


def test_it_looks_until_the_end(monkeypatch):
    monkeypatch.setattr(poll, "EVERY_S", 0.001)
    enough, count = threading.Event(), iter(range(10**6))

    def look():
        number = next(count)
        if number == 3:
            enough.set()
        return number

    with poll.Looks(look) as looks:
        assert enough.wait(30)
    seen = list(looks.seen)
    assert [answer for _, answer in seen] == list(range(len(seen))) and len(seen) >= 3
    assert [at for at, _ in seen] == sorted(at for at, _ in seen) and seen[0][0] >= 0
    assert not looks._thread.is_alive()


def test_looks_take_no_more_than_a_hundredth_of_a_core(monkeypatch):
    pauses, looks = [], poll.Looks(lambda: None, 0.001)
    clocks = {"perf_counter": iter([0.0, 0.01, 0.01] * 2), "thread_time": iter([0.0, 0.004] * 2)}
    monkeypatch.setattr(poll, "time", SimpleNamespace(**{name: ticks.__next__ for name, ticks in clocks.items()}))
    monkeypatch.setattr(looks, "_over", SimpleNamespace(is_set=bool, wait=lambda s: not pauses.append(s)))
    looks._begun = 0.0
    looks._run()
    assert pauses == [pytest.approx(0.4)], "100 times 4 ms of the processor, not 20 times 10 ms of waiting"


def test_one_look_is_kept_however_soon_the_end_comes():
    with poll.Looks(lambda: "x") as looks:
        pass
    assert [answer for _, answer in looks.seen] == ["x"]
