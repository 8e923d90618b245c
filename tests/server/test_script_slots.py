"""Page scripts take turns, and the thread that serves the feed is not kept waiting by them."""

import asyncio
import os
import statistics
import sys
import threading
import time

import pytest

from kvviz.server.script_slots import Slots, share_the_lock


def in_threads(count, work):
    """Start them; returns a function that waits for their end."""
    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    return lambda: [thread.join(timeout=30) for thread in threads]


def test_no_more_than_so_many_compute_at_once():
    turns, inside, most, lock = Slots(2), [0], [0], threading.Lock()

    def script():
        with turns.turn():
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
            time.sleep(0.02)
            with lock:
                inside[0] -= 1

    in_threads(8, script)()
    assert most[0] == 2


def test_a_turn_is_given_back_after_an_error():
    turns = Slots(1, patience=60)
    with pytest.raises(ValueError), turns.turn():
        raise ValueError
    done = threading.Event()

    def script():
        with turns.turn():
            done.set()

    in_threads(1, script)
    assert done.wait(5)


def test_who_has_a_turn_does_not_wait_for_itself():
    turns = Slots(1, patience=60)
    with turns.turn(), turns.turn():
        pass
    with turns.turn():
        pass


def test_who_waits_for_something_lets_others_go_on():
    turns, done = Slots(1, patience=60), threading.Event()

    def script():
        with turns.turn():
            done.set()

    with turns.turn():
        with turns.aside():
            in_threads(1, script)
            assert done.wait(5)
        done.clear()
        in_threads(1, script)
        assert not done.wait(0.1), "the turn was taken again after the wait"
    assert done.wait(5)


def test_nobody_waits_for_ever():
    turns, done = Slots(1, patience=0.05), threading.Event()

    def script():
        with turns.turn():
            done.set()

    with turns.turn():
        in_threads(1, script)
        assert done.wait(5)


def lateness(turns):
    """By how much a loop that wants to wake every 20 ms wakes too late beside eight busy scripts: the median."""
    stop = threading.Event()

    def script():
        while not stop.is_set():
            end = time.thread_time() + 0.03
            with turns.turn():
                while time.thread_time() < end:
                    sum(i * i for i in range(100))

    async def wakings():
        late = []
        for _ in range(5):
            start = time.perf_counter()
            await asyncio.sleep(0.02)
            late.append(time.perf_counter() - start - 0.02)
        return late

    wait = in_threads(8, script)
    late = asyncio.run(wakings())
    stop.set()
    wait()
    return statistics.median(late)


@pytest.mark.slow
@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="the server has a core of its own only where it can pin"
)
def test_the_feed_is_not_late_beside_busy_scripts():
    """Eight scripts at once make it wait many times as long as eight that take turns and hand the lock on.

    It is tried three times, because other work on that core makes both wait.
    """
    usual, cores = sys.getswitchinterval(), os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})

    def mended() -> bool:
        sys.setswitchinterval(usual)
        without = lateness(Slots(8))
        share_the_lock()
        return lateness(Slots(2)) < without / 3

    try:
        assert any(mended() for _ in range(3))
    finally:
        sys.setswitchinterval(usual)
        os.sched_setaffinity(0, cores)
