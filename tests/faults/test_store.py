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
from kvviz.server.jobs import FINISHED_IN_MEMORY
from kvviz.server.persister import Persister
from kvviz.store.db import database
from kvviz.store.db.store import Store
from kvviz.ui.folders import MAIN

pytestmark = pytest.mark.worker


DONE = {"t": "done", "document": {"model": "tiny-gpt2", "runs": []}}


def submit(scheduler):
    return scheduler.submit(ComparisonSpec(model="tiny-gpt2", prompt="x"))


def numbers(texts):
    return [record["repeat"] for record in map(json.loads, texts) if record["t"] == "pass"]


def measure(scheduler, own, start, count, size=2000):
    """Records that do not compress."""
    for number in range(start, start + count):
        scheduler.record(own, {"t": "pass", "mode": "cached", "repeat": number, "noise": os.urandom(size).hex()})


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


def test_a_full_disk(scheduler_without_worker, small_disk):
    scheduler, (store, fill, empty) = scheduler_without_worker, small_disk
    persister = Persister(scheduler, lambda: store)
    scheduler.keep_in(persister)
    own = submit(scheduler)
    measure(scheduler, own, 0, 3)
    persister.flush()
    fill()
    measure(scheduler, own, 3, 300)
    persister.flush()
    assert "disk" in persister.problem and scheduler.trouble == persister.problem
    app = AppTest.from_file(str(MAIN), default_timeout=30).run()
    assert any(persister.problem in warning.value for warning in app.warning), "the page says so"
    measure(scheduler, own, 303, 10)
    scheduler.record(own, DONE)
    second = submit(scheduler)
    scheduler.record(second, {"t": "pass", "mode": "cached", "repeat": 0})
    assert scheduler.get(own).state == "done" and len(numbers(scheduler.get(own).records)) == 313, "measuring went on"
    empty()
    persister.flush()
    assert persister.problem == scheduler.trouble == ""
    assert numbers(store.records(own)) == list(range(313)), "each once, none lost"
    assert store.get(own).state == "done" and numbers(store.records(second)) == [0]


def test_finished_works_stay_in_memory_until_they_are_kept(scheduler_without_worker, tmp_path):
    scheduler = scheduler_without_worker
    store = Store(tmp_path / "kvviz.sqlite")
    persister = Persister(scheduler, lambda: store)
    scheduler.keep_in(persister)
    ids = [submit_done(scheduler) for _ in range(FINISHED_IN_MEMORY + 10)]
    assert {job.id for job in scheduler.jobs()} == set(ids)
    persister.flush()
    submit_done(scheduler)
    assert len(scheduler.jobs()) == FINISHED_IN_MEMORY
    store.close()


def submit_done(scheduler):
    own = submit(scheduler)
    scheduler.record(own, DONE)
    return own


def test_a_locked_database(scheduler_without_worker, tmp_path, monkeypatch):
    monkeypatch.setattr(database, "BUSY_S", 0.2)
    store, scheduler = Store(tmp_path / "kvviz.sqlite"), scheduler_without_worker
    persister = Persister(scheduler, lambda: store)
    scheduler.keep_in(persister)
    own = submit(scheduler)
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        measure(scheduler, own, 0, 5)
        persister.flush()
        assert "locked by another process" in scheduler.trouble
        assert store.find() == [], "reading goes on"
        scheduler.record(own, DONE)
    persister.flush()
    assert scheduler.trouble == "" and numbers(store.records(own)) == [0, 1, 2, 3, 4] and store.get(own).state == "done"
    store.close()


def test_a_database_that_may_only_be_read(scheduler_without_worker, tmp_path):
    store, scheduler = Store(tmp_path / "kvviz.sqlite"), scheduler_without_worker
    read_only = [True]
    event.listen(store._database.engine, "connect", lambda f, _: f.execute(f"PRAGMA query_only = {int(read_only[0])}"))
    store._database.close()
    persister = Persister(scheduler, lambda: store)
    scheduler.keep_in(persister)
    own = submit(scheduler)
    measure(scheduler, own, 0, 2)
    persister.flush()
    assert "read but not written" in scheduler.trouble and scheduler.get(own).active
    read_only[0] = False
    store._database.close()
    persister.flush()
    assert scheduler.trouble == "" and numbers(store.records(own)) == [0, 1]
    store.close()
