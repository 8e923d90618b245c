"""A real server in the middle of a run is told to end; and nothing of what it was asked gets into its log."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from kvviz.store.db.store import Store

ROOT = Path(__file__).resolve().parents[2]
SECRET = "xyzzy-plugh"

# The server as `python app.py` starts it. Its worker fails at a prompt that ends in a bang, quoting it; then errors of
# every sort are raised in the server, and a long run is begun.
SERVER = """
import asyncio, logging, runpy, sys, threading, time, warnings

from kvviz.server import scheduler as module
from kvviz.server.worker_process import WorkerLink
from kvviz.experiments.comparison.spec import ComparisonSpec

WORKER = '''
import sys
import kvviz.experiments.comparison.run as comparison, kvviz.worker.loop as loop
perform = comparison.perform
def failing(work, loaded, **more):
    if work.prompt.endswith("!"):
        raise RuntimeError("could not do " + work.prompt) from ValueError(work.prompt)
    return perform(work, loaded, **more)
comparison.perform = failing
loop.main(int(sys.argv[1]))
'''
module.use(module.Scheduler(WorkerLink(lambda descriptor, cores: [sys.executable, "-c", WORKER, str(descriptor)])))
scheduler, secret = module.scheduler(), sys.argv[1]

def fail():
    raise RuntimeError(secret)

def errors():
    warnings.warn(secret)
    logging.getLogger("streamlit.made_later").error("bad %s", secret)
    logging.getLogger("kvviz.server.feed").error("odd", exc_info=RuntimeError(secret))
    threading.Thread(target=fail).start()
    async def task():
        asyncio.get_running_loop().call_exception_handler({"message": "odd", "exception": RuntimeError(secret)})
    asyncio.run(task())

def ask():
    while scheduler.worker_state != "ready":
        time.sleep(0.02)
    failed = scheduler.submit(ComparisonSpec(model="tiny-gpt2", prompt=secret + "!"))
    while scheduler.get(failed).active:
        time.sleep(0.02)
    errors()
    long = ComparisonSpec(model="tiny-gpt2", prompt="Say " + secret, new_tokens=1000, repeats=50)
    running, waiting = scheduler.submit(long), scheduler.submit(long)
    print("IDS", failed, running, waiting, flush=True)

threading.Thread(target=ask, daemon=True).start()
sys.argv = ["app.py"]
runpy.run_path("app.py", run_name="__main__")
"""


class Server:
    """It lives in a process group of its own, so that a test can end all of it."""

    def __init__(self, home):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.log = home / "log"
        environment = {**os.environ, "PORT": str(self.port), "KVVIZ_HOME": str(home), "KVVIZ_LOG": "debug"}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SERVER, SECRET],
                cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip
        lines = (line.split() for line in self.process.stdout)
        self.failed, self.running, self.waiting = next(line for line in lines if line[:1] == ["IDS"])[1:]


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path)
    yield server
    if server.process.poll() is None:
        os.killpg(server.process.pid, signal.SIGKILL)
    server.process.wait()


def half_a_request(port):
    """An upload that never ends: it must not keep the server."""
    link = socket.create_connection(("127.0.0.1", port))
    link.sendall(b"PUT /_stcore/upload_file/a/b HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc")
    return link


def last_messages(feed):
    """What a viewer is told until the socket is closed under it; and the code of that."""
    messages = []
    while True:
        try:
            messages.append(json.loads(feed.recv(timeout=20)))
        except ConnectionClosed as closed:
            return messages, closed.rcvd.code


@pytest.mark.slow
@pytest.mark.worker
def test_the_step_is_finished_all_is_kept_and_the_server_goes(server, tmp_path):
    with connect(f"ws://127.0.0.1:{server.port}/kv/feed?comparison={server.running}") as feed:
        while not any(r["t"] == "first_look" for r in json.loads(feed.recv(timeout=20)).get("records", ())):
            pass
        stuck = half_a_request(server.port)
        told = time.monotonic()
        os.kill(server.process.pid, signal.SIGTERM)
        messages, code = last_messages(feed)
    assert messages[-1]["records"][-1]["t"] == "stopped", "a viewer is told before its socket is closed"
    assert code == 1012, "service restart: come back"
    assert server.process.wait(timeout=20) == 0
    assert time.monotonic() - told < 10, "a container's host would have killed it"
    stuck.close()
    check_store(Store(tmp_path / "kvviz.sqlite"), server)
    check_log(server.log.read_text(), server)


def check_store(store, server):
    """Both runs are over; the one under way has all that was measured, and the end that viewers saw."""
    assert store.unfinished() == []
    records = [json.loads(text) for text in store.records(server.running)]
    assert store.get(server.running).state == "stopped" and "is kept" in store.get(server.running).message
    assert records[0]["t"] == "loading" and records[-1]["t"] == "stopped"
    assert sum(record["t"] == "first_look" for record in records) >= 1
    assert store.get(server.waiting).state == "stopped" and "before this run began" in store.get(server.waiting).message
    store.close()


def check_log(text, server):
    """Every line is JSON; nobody's words, no path, no traceback; but what went wrong is there, and where."""
    assert SECRET not in text and str(ROOT) not in text and "Traceback" not in text
    lines = [json.loads(line) for line in text.splitlines() if line.strip()]
    events = {line["event"]: line for line in lines}
    assert {"server_started", "worker_ready", "work_queued", "work_begun", "work_ended", "server_left"} <= set(events)
    assert events["work_failed"]["error"] == "RuntimeError" and events["work_failed"]["because"] == ["ValueError"]
    assert events["work_failed"]["process"] == "worker" and "failing" in events["work_failed"]["at"][-1]
    assert events["uncaught"]["at"][-1].endswith(" fail")
    ended = [line for line in lines if line["event"] == "work_ended"]
    assert (ended[0]["id"], ended[0]["state"]) == (server.failed, "failed")
    assert {line["id"] for line in ended} == {server.failed, server.running, server.waiting}
    assert all(line["seconds"] > 0 for line in ended if line["was"] == "running")


@pytest.mark.slow
@pytest.mark.worker
def test_the_command_becomes_the_server(tmp_path):
    """`kvviz` alone opens the dashboard: Ctrl-C, which reaches the worker too, ends the server with status 0."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "kvviz"],
        cwd=ROOT, env={**os.environ, "KVVIZ_HOME": str(tmp_path), "PORT": str(port)},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert any('"worker_started"' in line for line in process.stderr)
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=60) and process.returncode == 0
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0, "nobody listens there any more"
