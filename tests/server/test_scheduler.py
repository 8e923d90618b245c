"""The hub with a real worker: queue, stop, death and replacement."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvviz.base.errors import KvvizError
from kvviz.base.settings import Limits
from kvviz.device.clock import share_of_cores
from kvviz.experiments.comparison.report import headline
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.server.scheduler import KEEP, Hub
from kvviz.server.worker_process import why_it_ended, worker_command

SHORT = ComparisonSpec(model="tiny-gpt2", prompt="hello", new_tokens=4, repeats=1)
LONG = ComparisonSpec(model="tiny-gpt2", prompt="hello", new_tokens=1000, repeats=20)


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def hub():
    hub = Hub()
    hub.start(share_of_cores()[0])
    yield hub
    hub.close()
    assert hub._link.process.poll() is not None, "the worker ends with the hub"


def finished(hub, comparison_id):
    until(lambda: not hub.get(comparison_id).active)
    return hub.get(comparison_id)


def test_a_comparison_goes_through_and_the_device_is_named(hub):
    work = finished(hub, hub.submit(SHORT))
    assert work.state == "done" and work.document["identical"]
    assert hub.device["device"] and hub.device["rates"]["read"] > 0
    assert headline(work.document)[1]["mode"] == "cached"


def test_one_at_a_time_in_order_and_stop_is_prompt(hub):
    first, second = hub.submit(LONG), hub.submit(SHORT)
    until(lambda: hub.get(first).state == "running")
    assert hub.latest().id == first and hub.ahead(second) == 1 and hub.get(second).state == "queued"
    hub.stop(first)
    assert finished(hub, first).state == "stopped"
    assert finished(hub, second).state == "done"


def test_what_waits_can_be_stopped(hub):
    first, second, third = hub.submit(LONG), hub.submit(LONG), hub.submit(SHORT)
    hub.stop(second)
    assert hub.get(second).state == "stopped"
    hub.stop(first)
    assert finished(hub, third).state == "done"


def test_bad_work_fails_with_its_sentence_and_harms_nobody(hub):
    too_long = hub.submit(ComparisonSpec(model="tiny-gpt2", prompt="hello", new_tokens=2000))
    assert "1,024 positions" in finished(hub, too_long).message
    too_large = hub.submit(ComparisonSpec(model="llama-3.1-405b", prompt="hello"))
    assert "free" in finished(hub, too_large).message
    with pytest.raises(KvvizError):
        hub.submit(ComparisonSpec(model="nonsense", prompt="hello"))
    assert finished(hub, hub.submit(SHORT)).state == "done"


def test_the_queue_is_bounded_and_old_comparisons_are_forgotten():
    hub = Hub()
    ids = [hub.submit(SHORT) for _ in range(Limits().waiting)]
    with pytest.raises(KvvizError, match="waiting already"):
        hub.submit(SHORT)
    for comparison_id in ids:
        hub.stop(comparison_id)
    hub.submit(SHORT)
    assert len(hub._works) <= KEEP + 1


def test_a_worker_that_can_not_start_is_given_up_on(monkeypatch):
    monkeypatch.setattr("kvviz.server.worker_process.PATIENCE", (0.01, 0.01))
    hub = Hub(command=lambda descriptor, cores: [sys.executable, "-c", "raise SystemExit(3)"])
    hub.start()
    until(lambda: hub.worker_state == "down")
    waiting = hub.submit(SHORT)  # a new reason to try
    until(lambda: hub.worker_state != "down")
    until(lambda: hub.worker_state == "down")
    assert hub.get(waiting).state == "queued"
    hub.close()


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
if first:
    time.sleep(60)
pipe.send_bytes((job["id"] + ' failed\\n{"message": "second worker"}').encode())
pipe.recv_bytes()
"""


@pytest.fixture
def odd(tmp_path):
    """`odd("die")` is a hub whose first worker ends when it is handed work; with "hang" it loads for ever."""
    hubs = []

    def make(habit):
        hub = Hub(lambda fd, cores: [sys.executable, "-c", ODD_WORKER, str(fd), str(tmp_path / "marker"), habit])
        hub.start()
        hubs.append(hub)
        return hub

    yield make
    for hub in hubs:
        hub.close()


def test_work_that_was_handed_over_but_never_begun_is_not_lost(odd):
    hub = odd("die")
    assert finished(hub, hub.submit(SHORT)).message == "second worker"


def test_loading_can_be_stopped_too(odd):
    hub = odd("hang")
    stuck, after = hub.submit(SHORT), hub.submit(SHORT)
    until(lambda: hub.get(stuck).state == "loading")
    hub.stop(stuck)
    assert hub.get(stuck).state == "stopped"
    assert finished(hub, after).message == "second worker"
    assert hub.get(stuck).state == "stopped"


def test_a_process_that_can_not_be_made_does_not_end_the_hub(monkeypatch):
    monkeypatch.setattr("kvviz.server.worker_process.PATIENCE", (0.01, 0.01))

    def no_memory(descriptor, cores):
        raise OSError("Cannot allocate memory")

    hub = Hub(no_memory)
    hub.start()
    until(lambda: hub.worker_state == "down")
    hub._link.command = lambda descriptor, cores: worker_command(descriptor, "")
    assert finished(hub, hub.submit(SHORT)).state == "done"
    hub.close()


def test_the_last_result_stays_when_a_waiting_comparison_is_stopped(hub):
    first = hub.submit(ComparisonSpec(model="tiny-gpt2", prompt="hello", new_tokens=200, repeats=1))
    second = hub.submit(SHORT)
    hub.stop(second)
    finished(hub, first)
    assert hub.latest().id == first


def test_the_worker_leaves_when_the_server_is_killed():
    code = (
        "import time; from kvviz.server.scheduler import Hub; h = Hub(); h.start()\n"
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
    assert "killed" in why_it_ended(-9) and "SIGSEGV" in why_it_ended(-11) and "status 3" in why_it_ended(3)
