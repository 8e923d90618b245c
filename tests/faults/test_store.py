"""The disk full, the database locked or read-only: measuring goes on, the page says so, nothing is missing later."""

import json
import os
import sqlite3
import subprocess
from contextlib import closing

import pytest
from sqlalchemy import event
from streamlit.testing.v1 import AppTest

from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.server.persister import Keeper
from kvviz.store.db import database
from kvviz.store.db.store import Store
from kvviz.ui.folders import MAIN

DONE = {"t": "done", "document": {"model": "tiny-gpt2", "runs": []}}


def submit(hub):
    return hub.submit(ComparisonSpec(model="tiny-gpt2", prompt="x"))


def numbers(texts):
    return [record["repeat"] for record in map(json.loads, texts) if record["t"] == "pass"]


def measure(hub, own, start, count, size=2000):
    """Records that do not compress."""
    for number in range(start, start + count):
        hub.record(own, {"t": "pass", "mode": "cached", "repeat": number, "noise": os.urandom(size).hex()})


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 8 MB where one may be mounted; else a file that may not grow, which SQLite calls the same."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(disk)]
    mounted = subprocess.run(command, capture_output=True).returncode == 0
    store = Store(disk / "kvviz.sqlite")
    ballast = disk / "ballast"
    tight = [not mounted]

    def fill():
        if mounted:
            with ballast.open("wb", buffering=0) as file:
                for size in (100_000, 4096, 512, 1):
                    while True:
                        try:
                            file.write(b"x" * size)
                        except OSError:
                            break
        store._database.close()

    def empty():
        ballast.unlink(missing_ok=True)
        tight[0] = False
        store._database.close()

    if not mounted:
        pages = "PRAGMA max_page_count = "
        event.listen(store._database.engine, "connect", lambda f, _: f.execute(pages + ("1" if tight[0] else "999999")))
    yield store, fill, empty
    store.close()
    if mounted:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_full_disk(hub_without_worker, small_disk):
    hub, (store, fill, empty) = hub_without_worker, small_disk
    keeper = Keeper(hub, lambda: store)
    own = submit(hub)
    measure(hub, own, 0, 3)
    keeper.flush()
    fill()
    measure(hub, own, 3, 300)
    keeper.flush()
    assert "disk" in keeper.problem and hub.trouble == keeper.problem
    app = AppTest.from_file(str(MAIN), default_timeout=30).run()
    assert any(keeper.problem in warning.value for warning in app.warning), "the page says so"
    measure(hub, own, 303, 10)
    hub.record(own, DONE)
    second = submit(hub)
    hub.record(second, {"t": "pass", "mode": "cached", "repeat": 0})
    assert hub.get(own).state == "done" and len(numbers(hub.get(own).records)) == 313, "measuring went on"
    empty()
    keeper.flush()
    assert keeper.problem == hub.trouble == ""
    assert numbers(store.records(own)) == list(range(313)), "each once, none lost"
    assert store.get(own).state == "done" and numbers(store.records(second)) == [0]


def test_finished_works_stay_in_memory_until_they_are_kept(hub_without_worker, tmp_path):
    from kvviz.server.scheduler import KEEP

    hub = hub_without_worker
    kept = set()
    hub.is_kept = kept.__contains__
    ids = [submit_done(hub) for _ in range(KEEP + 10)]
    assert all(hub.get(own) is not None for own in ids)
    kept.update(ids)
    submit_done(hub)
    assert sum(own in hub._works for own in ids) < KEEP


def submit_done(hub):
    own = submit(hub)
    hub.record(own, DONE)
    hub._current = None
    return own


def test_a_locked_database(hub_without_worker, tmp_path, monkeypatch):
    monkeypatch.setattr(database, "BUSY_S", 0.2)
    store, hub = Store(tmp_path / "kvviz.sqlite"), hub_without_worker
    keeper = Keeper(hub, lambda: store)
    own = submit(hub)
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        measure(hub, own, 0, 5)
        keeper.flush()
        assert "locked by another process" in hub.trouble
        assert store.find() == [], "reading goes on"
        hub.record(own, DONE)
    keeper.flush()
    assert hub.trouble == "" and numbers(store.records(own)) == [0, 1, 2, 3, 4] and store.get(own).state == "done"
    store.close()


def test_a_database_that_may_only_be_read(hub_without_worker, tmp_path):
    store, hub = Store(tmp_path / "kvviz.sqlite"), hub_without_worker
    read_only = [True]
    event.listen(store._database.engine, "connect", lambda f, _: f.execute(f"PRAGMA query_only = {int(read_only[0])}"))
    store._database.close()
    keeper = Keeper(hub, lambda: store)
    own = submit(hub)
    measure(hub, own, 0, 2)
    keeper.flush()
    assert "read but not written" in hub.trouble and hub.get(own).active
    read_only[0] = False
    store._database.close()
    keeper.flush()
    assert hub.trouble == "" and numbers(store.records(own)) == [0, 1]
    store.close()
