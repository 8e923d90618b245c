"""The server is killed while viewers watch; a viewer leaves in the middle: real processes, real sockets."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from kvviz.store.db.store import Store
from tests.faults.conftest import until

pytestmark = pytest.mark.worker


ROOT = Path(__file__).resolve().parents[2]


class Server:
    """tests/faults/server.py on a port of its own, to be killed and started again on the same one."""

    def __init__(self, home):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.home = home

    def start(self):
        env = {**os.environ, "KVVIZ_HOME": str(self.home), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "tests.faults.server", str(self.port)]
        self.process = subprocess.Popen(command, cwd=ROOT, env=env)
        until(lambda: self.get("/kv/health"))

    def get(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return json.loads(answer.read())
        except OSError:
            return None

    def submit(self, prompt):
        return self.get(f"/submit?prompt={urllib.parse.quote(prompt)}")

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.kill()


class Viewer:
    """What shared/feed.js does with the socket: in order, no hole, nothing twice, back for what is missing."""

    def __init__(self, port, comparison=None):
        self.port, self.follows, self.comparison, self.records = port, comparison, None, []
        self.socket = None

    def open(self):
        query = {"comparison": self.follows} if self.follows else {}
        query |= {"had": self.comparison, "from": len(self.records)} if self.comparison else {}
        url = f"ws://127.0.0.1:{self.port}/kv/feed?{urllib.parse.urlencode(query)}"
        self.stack = ExitStack()
        self.socket = self.stack.enter_context(connect(url))

    def read(self, enough, seconds=60):
        """Take messages until the records are enough; False where the server has gone."""
        end = time.monotonic() + seconds
        while not enough(self.records):
            assert time.monotonic() < end, "it took too long"
            try:
                self.take(json.loads(self.socket.recv(timeout=seconds)))
            except (ConnectionClosed, EOFError):
                return False
        return True

    def take(self, message):
        if "status" in message:
            return
        if message["comparison"] != self.comparison or message.get("whole"):
            self.comparison, self.records = message["comparison"], []
        assert message["from"] <= len(self.records), "a hole"
        self.records += message["records"][len(self.records) - message["from"] :]

    @property
    def passes(self):
        return [record["repeat"] for record in self.records if record["t"] == "pass"]


def ended(records):
    return bool(records) and records[-1]["t"] in ("done", "stopped", "failed")


def test_the_server_is_killed_while_viewers_watch(server):
    own = server.submit("100000 records")
    viewers = [Viewer(server.port, own), Viewer(server.port, own), Viewer(server.port)]
    for viewer in viewers:
        viewer.open()
    for viewer, count in zip(viewers, (10, 20, 30), strict=True):
        assert viewer.read(lambda records, count=count: len(records) > count)
    server.kill()
    for viewer in viewers:
        assert not viewer.read(ended), "all that was sent is read, then the link is down"
    had = max(len(viewer.records) for viewer in viewers)
    server.start()
    for viewer in viewers:
        viewer.open()
        assert viewer.read(ended)
        assert viewer.comparison == own and viewer.records[-1]["t"] == "stopped"
        assert "server ended in the middle of this run" in viewer.records[-1]["message"]
        assert viewer.passes == list(range(len(viewer.passes))), "each once, in order"
    assert len({len(viewer.records) for viewer in viewers}) == 1, "all see the same"
    assert len(viewers[0].records) > had - 40, "what a kill can take is the last half second"
    store = Store(server.home / "kvviz.sqlite")
    assert store.get(own).state == "interrupted"
    store.close()
    after = Viewer(server.port, server.submit("3 records"))
    after.open()
    assert after.read(ended) and after.passes == [0, 1, 2], "the new server measures"
    for viewer in (*viewers, after):
        viewer.stack.close()


def test_a_browser_closed_in_the_middle(server):
    own = server.submit("30 records")
    viewer = Viewer(server.port, own)
    viewer.open()
    assert viewer.read(lambda records: len(records) > 5)
    viewer.stack.close()
    until(lambda: server.get("/kv/health")["viewers"] == 0)
    again = Viewer(server.port, own)
    again.open()
    assert again.read(ended) and again.records[-1]["t"] == "done", "its run goes to the end: others may watch it"
    assert again.passes == list(range(30))
