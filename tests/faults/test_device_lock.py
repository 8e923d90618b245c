"""Two who would measure at once: a second server, a command beside a server. They take turns and say who has it."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kvviz.base.errors import KvvizError
from kvviz.device.lock import lock_file, measured_beside, measuring
from tests.faults.conftest import finished, until
from tests.faults.test_worker import SHORT

pytestmark = pytest.mark.worker


ROOT = Path(__file__).resolve().parents[2]
HOLDER = (
    "import sys, time\nfrom kvviz.device.lock import measuring\n"
    "with measuring(sys.argv[1]):\n    print('mine', flush=True)\n    time.sleep(600)"
)


@pytest.fixture
def holder():
    """Another process that measures, until it is killed."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, "a test"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "mine\n"
    yield process
    process.kill()
    process.wait()


def kill(process):
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def test_who_does_not_want_to_wait_is_told_who_has_it(holder):
    said = rf"a test \(process {holder.pid}\) has had the device since \d"
    with pytest.raises(KvvizError, match=said), measuring("me", patient=False):
        pass
    kill(holder)
    with measuring("me", patient=False):
        assert json.loads(lock_file().read_text())["pid"] == os.getpid()
    assert lock_file().read_text() == ""


def test_who_waits_may_give_up(holder):
    heard = []

    def give_up():
        raise InterruptedError

    with pytest.raises(InterruptedError), measuring("me", tell=heard.append, between=give_up):
        pass
    assert len(heard) == 1 and "a test" in heard[0]


def test_measurements_never_overlap_and_take_turns(monkeypatch):
    """Threads open the file each for itself, so they exclude one another as processes do."""
    monkeypatch.setattr("kvviz.device.lock.LOOK", 0.002)
    spans = []

    def measure(name):
        for _ in range(8):
            with measuring(name):
                begun = time.monotonic()
                time.sleep(0.01)
                spans.append((begun, time.monotonic(), name))

    threads = [threading.Thread(target=measure, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spans.sort()
    assert len(spans) == 16
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    names = "".join(name for *_, name in spans)
    assert "aaaa" not in names.rstrip("a") and "bbbb" not in names.rstrip("b"), "who lets go does not overtake"


def test_without_a_place_for_the_lock_there_is_a_warning(monkeypatch, caplog):
    monkeypatch.setenv("KVVIZ_HOME", "/proc/nowhere")
    with measuring("me", patient=False):
        assert "no lock on the device" in caplog.text


def test_a_server_waits_for_another_process_and_says_for_whom(real, holder):
    own, other = real.submit(SHORT), real.submit(SHORT)
    until(lambda: real.workers[0].held_by)
    assert f"a test (process {holder.pid})" in real.place(own).held_by
    assert real.get(own).state == "queued" and real.expected_wait(other) is None
    real.stop(own)
    assert finished(real, own).state == "stopped", "waiting can be stopped"
    until(lambda: real.workers[0].held_by)
    kill(holder)
    assert finished(real, other).state == "done" and real.place(other).held_by == ""


def test_a_command_waits_for_another_process_and_says_for_whom(holder, kvviz):
    command = ("run", "--model", "tiny-gpt2", "--new-tokens", "4", "--repeats", "1")
    refused = kvviz(*command, "--no-wait")
    assert (refused.status, refused.out) == (2, "")
    assert f"a test (process {holder.pid})" in refused.err and refused.err.count("\n") == 1
    threading.Timer(0.3, kill, [holder]).start()
    waited = kvviz(*command)
    assert f"kvviz: waiting: a test (process {holder.pid})" in waited.err and waited.document["identical"]


FULL = (
    "import resource\nfrom kvviz.device.lock import measuring\n"
    "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
    "with measuring('a test'):\n    print('mine', flush=True)"
)


def test_a_full_disk_takes_the_lock_s_description_and_not_the_measurement():
    done = subprocess.run([sys.executable, "-c", FULL], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "mine\n", "")


def test_a_worker_on_the_processor_knows_when_another_one_measured_beside_it():
    """The one's own lock and that of a card do not count, nor the description that a killed process left."""
    began = time.time() - 60
    with measuring("me", worker="cpu:0"), measuring("a card", worker="cuda:0"):
        assert not measured_beside("cpu:0", began) and measured_beside("cpu:1", time.time())
        assert not measured_beside("cuda:1", began)
    assert measured_beside("cpu:1", began) and not measured_beside("cpu:1", time.time() + 1)
    lock_file("cpu:0").write_text('{"pid": 1}')
    assert not measured_beside("cpu:1", time.time() + 1)
