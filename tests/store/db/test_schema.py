"""Older files climb the ladder, newer ones are refused, and a file that fails is called by its name."""

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import event

from kvviz.base.errors import KvvizError
from kvviz.store.db import database, schema
from kvviz.store.db.store import Store
from tests.store.db.conftest import keep, made_up


def open_and_close(path):
    Store(path).close()
    return path


def version(path):
    with closing(sqlite3.connect(path)) as file:
        return file.execute("PRAGMA user_version").fetchone()[0]


@pytest.fixture
def old(tmp_path):
    """A file from before versions were counted: fewer tables, fewer columns, a row in it."""
    path = tmp_path / "old.sqlite"
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE works (id TEXT PRIMARY KEY, model TEXT, prompt TEXT, created REAL)")
        file.execute("INSERT INTO works VALUES ('first', 'gpt2', 'Hello there', 1700000000.5)")
        file.commit()
    return path


def test_rows_of_an_old_file_open(old):
    assert version(old) == 0
    store = Store(old)
    row = store.get("first")
    assert row.model == "gpt2" and row.prompt == "Hello there" and row.created.year == 2023
    assert row.state == "interrupted" and row.kind == "comparison" and row.tags == () and row.headline == ()
    assert [found.id for found in store.find("hello")] == ["first"]
    texts, document = made_up()
    store.append("first", texts)
    store.finish("first", "done", document)
    assert len(store.run("first-cached").repeats) == 2
    store.close()
    assert version(old) == len(schema.LADDER) == 2


def test_each_rung_is_climbed_once_and_in_order(old, monkeypatch):
    open_and_close(old)
    climbed = []
    rungs = [lambda connection, n=n: climbed.append(n) for n in (3, 4)]
    monkeypatch.setattr(schema, "LADDER", (*schema.LADDER, *rungs))
    monkeypatch.setattr(database, "LADDER", schema.LADDER)
    for _ in range(2):
        open_and_close(old)
    assert climbed == [3, 4] and version(old) == 4


def test_a_rung_that_breaks_leaves_the_file_as_it_was(old, monkeypatch):
    open_and_close(old)

    def breaks(connection):
        connection.exec_driver_sql("ALTER TABLE works ADD COLUMN half")
        connection.exec_driver_sql("no SQL")

    monkeypatch.setattr(schema, "LADDER", (*schema.LADDER, breaks))
    monkeypatch.setattr(database, "LADDER", schema.LADDER)
    with pytest.raises(KvvizError, match="syntax error"):
        Store(old)
    monkeypatch.undo()
    assert version(old) == 2
    with closing(sqlite3.connect(old)) as file:
        assert "half" not in [row[1] for row in file.execute("PRAGMA table_info(works)")]


def test_a_newer_file_is_refused_untouched(tmp_path):
    path = tmp_path / "new.sqlite"
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA user_version = 7")
    before = path.read_bytes()
    with pytest.raises(KvvizError, match="newer kvviz"):
        Store(path)
    assert path.read_bytes() == before


def test_the_file_is_in_wal_mode_and_only_appends_leave_no_row_a_step(store):
    texts, document = made_up(steps=500)
    keep(store, "c", records=texts, document=document)
    with closing(sqlite3.connect(store.path)) as file:
        assert file.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        counts = {name: file.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in schema.metadata.tables}
    assert counts == {"works": 1, "parts": 2, "runs": 2}


# --- files that fail ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"this is a letter, not a store" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_what_is_no_store_is_named(tmp_path, content):
    path = tmp_path / "kvviz.sqlite"
    path.write_bytes(content)
    with pytest.raises(KvvizError, match=r"kvviz\.sqlite is (no store|damaged)"):
        Store(path)
    assert path.read_bytes() == content


def test_a_damaged_page_and_a_damaged_blob(store):
    texts, document = made_up(steps=2000)
    keep(store, "c", records=texts, document=document)
    with closing(sqlite3.connect(store.path)) as file:
        file.execute("UPDATE runs SET columns = x'00ff'")
        file.execute("UPDATE parts SET data = x'00ff'")
        file.commit()
    for read in (store.document, store.records, lambda _: store.run("c-cached")):
        with pytest.raises(KvvizError, match="damaged"):
            read("c")
    with pytest.raises(KvvizError):
        store.finish("c", "done", document)
    assert store.get("c").state == "done"
    with closing(sqlite3.connect(store.path)) as file:
        file.execute("UPDATE works SET headline = '['")
        file.commit()
    for read in (store.get, lambda _: store.find()):
        with pytest.raises(KvvizError, match="damaged"):
            read("c")


@pytest.mark.parametrize("place", ["/proc/kvviz/kvviz.sqlite", "/proc/kvviz.sqlite", "/dev/null/kvviz.sqlite", "/"])
def test_where_nothing_can_be_made(place):
    with pytest.raises(KvvizError, match="can't be opened"):
        Store(Path(place))


@pytest.fixture
def nobody():
    """Rights that a file's mode can restrict: root's can't be, so root becomes someone else for the test."""
    was = os.geteuid()
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder), lambda: os.seteuid(65534 if was == 0 else was)
        os.seteuid(was)


def test_a_file_that_may_only_be_read_is_read(nobody):
    folder, become = nobody
    path = folder / "kvviz.sqlite"
    store = Store(path)
    keep(store, "c", document=made_up()[1])
    path.chmod(0o444)
    folder.chmod(0o777)
    store.close()
    become()
    store = Store(path)
    assert store.get("c").state == "done" and len(store.document("c")["runs"]) == 2
    for write in (lambda: store.begin("d", {}), lambda: store.append("c", ["{}"]), lambda: store.finish("c", "failed")):
        with pytest.raises(KvvizError, match="read but not written"):
            write()
    store.close()


def test_a_full_disk_costs_the_call_and_nothing_else(store):
    texts, document = made_up()
    keep(store, "before", records=texts, document=document)
    store.begin("c", {})
    event.listen(store._database.engine, "connect", lambda file, _: file.execute("PRAGMA max_page_count = 1"))
    store._database.close()  # the next connection finds no room
    big = [f'"{os.urandom(200_000).hex()}"']
    for write in (lambda: store.append("c", big), lambda: store.finish("c", "done", {"x": big})):
        with pytest.raises(KvvizError, match="disk is full"):
            write()
    assert store.get("c").state == "running" and store.records("c") == [] and store.records("before") == texts


def test_another_process_that_never_lets_go(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "BUSY_S", 0.2)
    store = Store(tmp_path / "kvviz.sqlite")
    keep(store, "c")
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(KvvizError, match=r"locked by another process for more than 0\.2 s"):
            store.begin("d", {})
        assert store.get("c") is not None, "reading goes on"
    store.begin("d", {})
    store.close()
