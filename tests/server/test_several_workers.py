"""Several workers on one queue: who takes what, who waits for whom, and what the death of one of them costs."""

import json
import os
import signal

import pytest

from kvviz.base.errors import KvvizError
from kvviz.device.cores import divided
from kvviz.device.lock import lock_file, measuring
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.server import staff as module
from kvviz.server.employed import able
from kvviz.server.feed import health
from kvviz.server.scheduler import Scheduler
from kvviz.server.staff import staff
from kvviz.server.worker_process import WorkerLink
from tests.faults.conftest import fake_command, finished, until

HELLO = {"device": "cpu", "device_name": "A processor", "threads": 4, "total_bytes": 16, "free_bytes": 8, "rates": {}}


class Silent:
    """A link to nobody: the test speaks in the worker's place, and sees what it is told."""

    def __init__(self, name):
        self.name, self.up, self.told = name, True, []

    def start(self, listener, cores=()):
        self.cores = cores

    def tell(self, message):
        self.told.append(message)

    def close(self):
        self.up = False

    kill = close

    def wake(self):
        pass


def asking(device="auto", new_tokens=8):
    return ComparisonSpec(model="tiny-gpt2", prompt="x", device=device, new_tokens=new_tokens)


@pytest.fixture
def two():
    """Two shares of one processor, and a card beside them."""
    scheduler = Scheduler(Silent("cpu:0"), Silent("cpu:1"), Silent("cuda:0"))
    for worker in scheduler.workers:
        card = {"device": "cuda:0", "device_name": "A card"} if worker.name == "cuda:0" else {}
        worker.received("-", "hello", json.dumps(HELLO | card))
    return scheduler


def in_hand(scheduler):
    return {worker.name: worker.job.id for worker in scheduler.workers if worker.job}


def end(worker):
    worker.received(worker.job.id, "done", json.dumps({"document": {"runs": []}}))


def test_auto_is_any_worker_like_the_first_and_a_name_is_that_one(two):
    own = [two.submit(asking(new_tokens=n)) for n in (8, 9, 10)]
    assert in_hand(two) == {"cpu:0": own[0], "cpu:1": own[1]}, "no card is taken for a processor"
    card = two.submit(asking("cuda"))
    assert in_hand(two)["cuda:0"] == card and two.ahead(own[2]) == 1
    named = two.submit(asking("cpu:0"))
    end(two.workers[1])
    assert in_hand(two)["cpu:1"] == own[2], "who asks for the other share waits for it"
    end(two.workers[0])
    assert in_hand(two)["cpu:0"] == named
    asked = two.workers[0].link.told[-1]["spec"]
    assert asked["device"] == "cpu", "the worker knows its share as the processor"
    assert two.measured_on(two.get(named)) == "cpu:0"


def test_a_device_by_another_name_is_found(two):
    assert [worker.name for worker in able(two.workers, "cpu")] == ["cpu:0", "cpu:1"]
    assert [worker.name for worker in able(two.workers, "cuda")] == ["cuda:0"]
    assert [worker.name for worker in able(two.workers, "cuda:7")] == ["cpu:0"], "who says that it is not there"
    two.workers[0].worker_is("down")
    assert [worker.name for worker in able(two.workers, "auto")] == ["cpu:1"]


def test_unequal_shares_do_not_stand_for_one_another(two):
    two.workers[1].received("-", "hello", json.dumps(HELLO | {"threads": 3}))
    assert [worker.name for worker in able(two.workers, "auto")] == ["cpu:0"]


def test_owners_take_turns_over_all_workers(two):
    anns = [two.submit(asking(new_tokens=n), "a" * 22) for n in (8, 9, 10, 11)]
    bens = two.submit(asking(new_tokens=12), "b" * 22)
    assert [two.ahead(job) for job in (bens, anns[2], anns[3])] == [1, 2, 3]
    end(two.workers[0])
    assert in_hand(two)["cpu:0"] == bens


def test_the_wait_is_until_the_first_worker_is_free(two):
    for worker in two.workers:
        worker.device["rates"] = {"read": 2e10, "flops": 8e10, "launch": 2e-6}
    first, second, third, fourth = (two.submit(asking(new_tokens=n)) for n in (400, 40, 40, 8))
    whole = {job: two.get(job).countdown.whole for job in (first, second, third)}
    assert whole[first] > 2 * whole[second] > 0
    assert two.expected_wait(third) == pytest.approx(whole[second])
    assert two.expected_wait(fourth) == pytest.approx(whole[second] + whole[third])
    two.workers[1].received("-", "held", json.dumps({"by": "somebody has it"}))
    assert two.place(fourth).held_by == "", "the other worker is at work"
    assert two.place(second).words == "Waiting: somebody has it"
    assert two.expected_wait(third) == pytest.approx(whole[first])


def test_the_page_follows_the_comparison_that_began_first(two):
    first, second = two.submit(asking(new_tokens=8)), two.submit(asking(new_tokens=9))
    assert two.shown().id == first
    end(two.workers[0])
    assert two.shown().id == second
    end(two.workers[1])
    assert two.shown().id == second, "the last result stays"


def test_a_server_is_well_as_long_as_one_worker_is_ready(two):
    two.workers[0].worker_is("down")
    code, told = health(two, viewers=0)
    assert (code, told["worker"]) == (200, "ready")
    assert told["workers"] == {"down": 1, "ready": 2}
    for worker in two.workers:
        worker.worker_is("down")
    assert health(two, viewers=0)[0] == 503


def test_the_line_tells_who_waits_and_since_when(two):
    ids = [two.submit(asking(new_tokens=n)) for n in (8, 9, 10)]
    assert [job.id for job, _ in two.line()] == ids
    assert all(waited >= 0 for _, waited in two.line())


def test_each_device_is_offered_with_what_it_has_free(two):
    two.workers[2].received("-", "free", json.dumps({"bytes": 5}))
    offered = {one["device"]: one["free_bytes"] for one in two.devices()}
    assert offered == {"cpu:0": 8, "cpu:1": 8, "cuda:0": 5}
    two.submit(asking())
    assert two.workers[0].link.told[-1]["limits"]["memory_share"] == two.limits.memory_share / 2
    two.submit(asking("cuda:0"))
    assert two.workers[2].link.told[-1]["limits"]["memory_share"] == two.limits.memory_share


@pytest.mark.worker
def test_two_processes_measure_at_once_and_one_outlives_the_other():
    scheduler = Scheduler(*(WorkerLink(fake_command, name=name) for name in ("cpu:0", "cpu:1")))
    scheduler.start()
    try:
        until(lambda: all(worker.state == "ready" for worker in scheduler.workers))
        killed, spared = (scheduler.submit(ComparisonSpec(model="tiny-gpt2", prompt=f"{n} records")) for n in (999, 30))
        until(lambda: all(scheduler.get(job).state == "running" for job in (killed, spared)))
        waiting = scheduler.submit(ComparisonSpec(model="tiny-gpt2", prompt="1 record"))
        os.kill(scheduler.workers[0].link.process.pid, signal.SIGKILL)
        assert "it was killed" in finished(scheduler, killed).message
        assert finished(scheduler, spared).state == finished(scheduler, waiting).state == "done"
        last = scheduler.submit(ComparisonSpec(model="tiny-gpt2", prompt="999 records"))
        until(lambda: scheduler.get(last).state == "running")
    finally:
        scheduler.close()
    assert scheduler.get(last).state == "stopped"


# --- locks and cores -----------------------------------------------------------------------------------------------


def test_workers_share_the_machine_and_everybody_else_takes_it_whole():
    with measuring("one", worker="cpu:0"), measuring("two", worker="cpu:1", patient=False):
        assert json.loads(lock_file("cpu:1").read_text())["what"] == "two"
        with pytest.raises(KvvizError, match=r"(one|two) \(process \d+\) has had the device"):
            measuring("a command", patient=False).__enter__()
        with pytest.raises(KvvizError, match="two"):
            measuring("another server", worker="cpu:1", patient=False).__enter__()
    with (
        measuring("a command", patient=False),
        pytest.raises(KvvizError, match="a command"),
        measuring("one", worker="cpu:0", patient=False),
    ):
        pass


@pytest.mark.parametrize(
    ("workers", "measuring", "cores"),
    [
        (["cpu:0", "cpu:1"], [0], [[0], [1]]),  # the server's core measures too
        (["cpu:0", "cpu:1"], [0, 1, 2, 3, 4], [[0, 1], [2, 3]]),
        (["cuda:0", "cpu"], [*range(15)], [[0, 1], [*range(2, 15)]]),
        (["cuda:0", "cuda:1"], [0, 1, 2, 3, 4, 5, 6], [[0, 1], [2, 3]]),
        (["cpu:0", "cpu:1", "cpu:2"], [0], [[], [], []]),
        (["cpu:0", "cpu:1"], [], [[], []]),
    ],
)
def test_cores_are_divided(workers, measuring, cores):
    assert divided(workers, measuring, [max(measuring) + 1] if measuring else []) == cores


def test_each_device_that_works_gets_a_worker(monkeypatch):
    assert staff((), [0], [1]) == []
    assert [link.name for link in staff(("cpu:0", "cpu:1"), [0], [1])] == ["cpu:0", "cpu:1"]
    for found in (["cpu"], ["cuda:0", "cpu"]):
        monkeypatch.setattr(module, "working_devices", lambda found=found: [{"device": name} for name in found])
        names = [link.name for link in staff(("all",), [0, 1, 2], [3])]
        assert names == (found if len(found) > 1 else []), "one device: the usual single worker"
