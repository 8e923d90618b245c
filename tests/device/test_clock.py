"""The clock stands outside: it counts what a generator does, and nothing of what its consumer does."""

import gc

import pytest

from kvviz.device.clock import (
    checked_between_calls,
    fastest_calls,
    interleaved,
    median_call,
    no_collection,
    quartiles,
    synchroniser,
    timed,
)


class FakeTime:
    """A clock that only moves when told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def steps(time, costs):
    for cost in costs:
        time.now += cost
        yield cost


def test_the_clock_counts_no_consumer():
    time = FakeTime()
    seconds = []
    for step in timed(steps(time, [1.0, 2.0, 3.0]), sync=lambda: None, clock=time):
        seconds.append(step.seconds)
        time.now += 100.0  # a slow sink: snapshot, drawing, sending
    assert seconds == [1.0, 2.0, 3.0]


def test_every_card_of_a_split_model_is_waited_for(monkeypatch):
    waited = []
    monkeypatch.setattr("torch.cuda.synchronize", waited.append)
    synchroniser("cuda:0", "cuda:1", "cpu", "disk")()
    assert waited == ["cuda:0", "cuda:1"]


def test_the_device_is_synchronised_on_both_sides():
    time, log = FakeTime(), []

    def queueing():
        for _ in range(2):
            log.append("work")
            yield

    def sync():
        log.append("sync")
        time.now += 5.0 if log[-2:] == ["work", "sync"] else 0.0  # queued work ends here

    assert [t.seconds for t in timed(queueing(), sync, clock=time)] == [5.0, 5.0]
    assert log[:3] == ["sync", "work", "sync"]


@pytest.mark.parametrize("measure", [median_call, lambda call, sync: fastest_calls({"": call}, sync, 60.0)])
def test_a_measurement_can_be_ended_between_two_calls(measure):
    class Ended(Exception):
        pass

    def check():
        if len(called) == 2:
            raise Ended

    called = []
    with checked_between_calls(check), pytest.raises(Ended):
        measure(lambda: called.append(1), lambda: None)
    assert len(called) == 2, "and none of them was cut off"
    median_call(lambda: called.append(1), lambda: None)
    assert len(called) > 4, "nothing ends what is measured later"


def test_modes_take_turns_first():
    assert list(interleaved(["a", "b"], 3)) == [(0, "a"), (0, "b"), (1, "b"), (1, "a"), (2, "a"), (2, "b")]


@pytest.mark.slow
def test_no_timed_pass_follows_a_look_at_all_that_a_process_holds():
    held = [[] for _ in range(10)]
    with no_collection():
        pass
    try:
        assert not any(one is held for one in gc.get_objects()), "the next collection would look at it again"
    finally:
        gc.unfreeze()


def test_no_collection_pauses_and_restores():
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), no_collection():
        assert not gc.isenabled()
        raise ZeroDivisionError
    assert gc.isenabled()


def test_quartiles_interpolate():
    assert quartiles([4.0]) == (4.0, 4.0, 4.0)
    assert quartiles([1.0, 2.0, 3.0]) == (1.5, 2.0, 2.5)
