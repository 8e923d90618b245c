"""The scheduler with a real worker: queue, stop, death and replacement."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvviz.base.errors import KvvizError
from kvviz.base.settings import Limits
from kvviz.device.cores import share_of_cores
from kvviz.experiments.comparison.figures import headline
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.server.jobs import FINISHED_IN_MEMORY
from kvviz.server.scheduler import Scheduler
from kvviz.server.worker_process import WorkerLink, why_it_ended

SHORT = ComparisonSpec(model="tiny-gpt2", prompt="hello", new_tokens=4, repeats=1)
LONG = ComparisonSpec(model="tiny-gpt2", prompt="hello", new_tokens=1000, repeats=20)


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def scheduler():
    scheduler = Scheduler()
    scheduler.start(share_of_cores()[0])
    yield scheduler
    scheduler.close()
    assert scheduler.workers[0].link.process.poll() is not None, "the worker ends with the scheduler"


def finished(scheduler, comparison_id):
    until(lambda: not scheduler.get(comparison_id).active)
    return scheduler.get(comparison_id)


@pytest.mark.slow
def test_a_comparison_goes_through_and_the_device_is_named(scheduler):
    work = finished(scheduler, scheduler.submit(SHORT))
    assert work.state == "done" and work.document["identical"]
    assert scheduler.device["device"] and scheduler.device["rates"]["read"] > 0
    assert headline(work.document)[1]["mode"] == "cached"


@pytest.mark.slow
def test_one_at_a_time_in_order_and_stop_is_prompt(scheduler):
    first, second = scheduler.submit(LONG), scheduler.submit(SHORT)
    until(lambda: scheduler.get(first).state == "running")
    assert scheduler.shown().id == first and scheduler.ahead(second) == 1 and scheduler.get(second).state == "queued"
    scheduler.stop(first)
    assert finished(scheduler, first).state == "stopped"
    assert finished(scheduler, second).state == "done"


@pytest.mark.slow
def test_what_waits_can_be_stopped(scheduler):
    first, second, third = scheduler.submit(LONG), scheduler.submit(LONG), scheduler.submit(SHORT)
    scheduler.stop(second)
    assert scheduler.get(second).state == "stopped"
    until(lambda: scheduler.get(first).state == "running")  # while it loads, a stop would cost a new worker
    scheduler.stop(first)
    assert finished(scheduler, third).state == "done"


@pytest.mark.slow
def test_bad_work_fails_with_its_sentence_and_harms_nobody(scheduler):
    too_long = scheduler.submit(ComparisonSpec(model="tiny-gpt2", prompt="hello", new_tokens=2000))
    assert "1,024 positions" in finished(scheduler, too_long).message
    too_large = scheduler.submit(ComparisonSpec(model="llama-3.1-405b", prompt="hello"))
    assert "free" in finished(scheduler, too_large).message
    with pytest.raises(KvvizError):
        scheduler.submit(ComparisonSpec(model="nonsense", prompt="hello"))
    assert finished(scheduler, scheduler.submit(SHORT)).state == "done"


def test_the_queue_is_bounded_and_old_comparisons_are_forgotten():
    scheduler = Scheduler()
    ids = [scheduler.submit(SHORT) for _ in range(Limits().waiting)]
    with pytest.raises(KvvizError, match="waiting already"):
        scheduler.submit(SHORT)
    for comparison_id in ids:
        scheduler.stop(comparison_id)
    scheduler.submit(SHORT)
    assert len(scheduler.jobs()) <= FINISHED_IN_MEMORY + 1


@pytest.mark.worker
def test_a_worker_that_can_not_start_is_given_up_on(monkeypatch):
    monkeypatch.setattr("kvviz.server.worker_process.RETRY_AFTER_S", (0.01, 0.01))
    scheduler = Scheduler(WorkerLink(lambda descriptor, cores: [sys.executable, "-c", "raise SystemExit(3)"]))
    scheduler.start()
    until(lambda: scheduler.worker_state == "down")
    waiting = scheduler.submit(SHORT)  # a new reason to try
    until(lambda: scheduler.worker_state != "down")
    until(lambda: scheduler.worker_state == "down")
    assert scheduler.get(waiting).state == "queued"
    scheduler.close()


# A worker that greets, then does with its first comparison what the test wants to see survived.
ODD_WORKER = """
import json, pathlib, sys, time
from multiprocessing.connection import Connection
pipe, marker = Connection(int(sys.argv[1])), pathlib.Path(sys.argv[2])
pipe.send_bytes(b'- hello\\n' + json.dumps({"t": "hello", "rates": {}}).encode())
job = json.loads(pipe.recv_bytes())
first = not marker.exists()
marker.touch()
if first and sys.argv[3] == "die":
    sys.exit(0)
pipe.send_bytes((job["id"] + " loading\\n{}").encode())
if first and sys.argv[3] == "hang":
    time.sleep(60)
pipe.send_bytes((job["id"] + ' failed\\n{"message": "second worker"}').encode())
pipe.recv_bytes()
"""


@pytest.fixture
def odd_command(tmp_path):
    """`odd_command("die")` starts a worker that ends when it is first handed work; with "hang" it loads for ever."""
    return lambda habit: lambda fd, cores: [sys.executable, "-c", ODD_WORKER, str(fd), str(tmp_path / "marker"), habit]


@pytest.fixture
def odd(odd_command):
    """`odd("die")` is a scheduler with such a worker."""
    schedulers = []

    def make(habit):
        scheduler = Scheduler(WorkerLink(odd_command(habit)))
        scheduler.start()
        schedulers.append(scheduler)
        return scheduler

    yield make
    for scheduler in schedulers:
        scheduler.close()


@pytest.mark.slow
def test_work_that_was_handed_over_but_never_begun_is_not_lost(odd):
    scheduler = odd("die")
    assert finished(scheduler, scheduler.submit(SHORT)).message == "second worker"


@pytest.mark.slow
def test_loading_can_be_stopped_too(odd):
    scheduler = odd("hang")
    stuck, after = scheduler.submit(SHORT), scheduler.submit(SHORT)
    until(lambda: scheduler.get(stuck).state == "loading")
    scheduler.stop(stuck)
    assert scheduler.get(stuck).state == "stopped"
    assert finished(scheduler, after).message == "second worker"
    assert scheduler.get(stuck).state == "stopped"


@pytest.mark.worker
def test_a_process_that_can_not_be_made_does_not_end_the_scheduler(monkeypatch, odd_command):
    monkeypatch.setattr("kvviz.server.worker_process.RETRY_AFTER_S", (0.01, 0.01))

    def no_memory(descriptor, cores):
        raise OSError("Cannot allocate memory")

    scheduler = Scheduler(WorkerLink(no_memory))
    scheduler.start()
    until(lambda: scheduler.worker_state == "down")
    scheduler.workers[0].link.command = odd_command("none")
    assert finished(scheduler, scheduler.submit(SHORT)).message == "second worker", "it starts one as soon as it can"
    scheduler.close()


@pytest.mark.slow
def test_the_last_result_stays_when_a_waiting_comparison_is_stopped(scheduler):
    first, second = scheduler.submit(SHORT), scheduler.submit(SHORT)
    scheduler.stop(second)
    finished(scheduler, first)
    assert scheduler.shown().id == first


@pytest.mark.slow
@pytest.mark.worker
def test_the_worker_leaves_when_the_server_is_killed():
    code = (
        "import time; from kvviz.server.scheduler import Scheduler; h = Scheduler(); h.start()\n"
        "while h.worker_state != 'ready': time.sleep(0.05)\n"
        "print(h.device['pid'], flush=True); time.sleep(60)"
    )
    server = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    worker = int(server.stdout.readline())
    server.kill()
    server.wait()
    until(lambda: not alive(worker), seconds=10)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2] if Path("/proc").exists() else True


def test_exit_statuses_in_words():
    for code, says in ((-9, "it was killed"), (-11, "SIGSEGV"), (3, "exit status 3")):
        assert says in why_it_ended(code, "a sweep") and "in the middle of a sweep (" in why_it_ended(code, "a sweep")
