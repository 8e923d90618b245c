"""The watched folder: what comes is kept once, what is half written waits, what is hostile stays where it is."""

import gzip
import os
import time
from itertools import count

import pytest

from kvviz.base.errors import KvvizError
from kvviz.server.inbox import Inbox
from kvviz.store.files import exchange
from kvviz.ui.folders import ASSETS
from tests.experiments.sweep.test_spec import GRID, elsewhere

WHOLE = elsewhere(GRID)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "inbox").mkdir()
    return tmp_path / "inbox"


@pytest.fixture
def watching(folder, store):
    return Inbox(folder, lambda: store)


def seen(inbox, looks=2):
    for _ in range(looks):
        inbox.look()
    assert not inbox.problem
    return {arrival.name: arrival for arrival in inbox.arrivals}


def test_a_file_is_kept_once_it_has_come_whole(watching, folder, store):
    (folder / "a.jsonl").write_bytes(WHOLE[:-100])
    assert seen(watching, 1)["a.jsonl"].says == "It is still being written."
    assert seen(watching, 1)["a.jsonl"].says == "7 of 8 passes so far; it is taken in when it is whole."
    (folder / "a.jsonl").write_bytes(WHOLE)
    assert seen(watching, 1)["a.jsonl"].state == "waiting" and not store.count(kind=None)
    found = seen(watching, 1)["a.jsonl"]
    assert (found.state, found.says) == ("taken", "A grid (tiny-gpt2), a on a card.")
    (kept,) = store.find(kind="sweep")
    assert (kept.origin, kept.state, kept.made_by) == ("import", "done", "")
    assert len(store.document(kept.id)["rows"]) == 4 and (folder / "a.jsonl").read_bytes() == WHOLE


def test_nothing_is_kept_twice(watching, folder, store):
    (folder / "a.jsonl").write_bytes(WHOLE)
    (folder / "copy.jsonl").write_bytes(WHOLE)
    seen(watching)
    assert seen(Inbox(folder, lambda: store))["a.jsonl"].state == "taken", "after a restart"
    (kept,) = store.find(kind="sweep")
    store.delete(kept.id)
    assert seen(Inbox(folder, lambda: store))["a.jsonl"].says.startswith("It was deleted here. Drop the file")
    assert store.purge(time.time()) == 1
    assert seen(Inbox(folder, lambda: store))["a.jsonl"].says.startswith("It was deleted here.")
    assert not store.find(kind="sweep")
    again = exchange.take_in(store, WHOLE)
    assert [found.id for found in store.find(kind="sweep")] == [again], "by hand it is taken in under an id of its own"


def test_what_a_server_left_half_written_is_written_anew(watching, folder, store, monkeypatch):
    (folder / "a.jsonl").write_bytes(WHOLE)
    with monkeypatch.context() as patch:
        patch.setattr(store, "append", lambda *more: refuse())
        assert seen(watching)["a.jsonl"].says == "The disk is gone."
    (begun,) = store.find(kind="sweep")
    store.finish(begun.id, "interrupted")  # what the next server does with it
    found = seen(watching, 1)["a.jsonl"]
    assert found.state == "taken" and found.stored.id != begun.id and store.document(found.stored.id)["rows"]


def refuse():
    raise KvvizError("the disk is gone")


def test_hostile_files_are_a_sentence_each_and_stay(watching, folder, store, monkeypatch):
    secret = folder.parent / "secret.json"
    secret.write_bytes(WHOLE)
    (folder / "link.json").symlink_to(secret)
    (folder / "gone.json").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe.json")
    (folder / "folder.json").mkdir()
    (folder / "large.json").write_bytes(b"[" * 5_000_001)
    (folder / "deep.json").write_bytes(b"[" * 100_000)
    (folder / "other.json").write_text('{"kvviz": "comparison", "version": 99}')
    (folder / "spec.jsonl").write_bytes(elsewhere(GRID, spec={}))
    (folder / "slurm-1.out").write_text("not looked at")
    (folder / ".hidden.json").write_text("not looked at")
    (folder / os.fsdecode(b"\xff<b>.json")).symlink_to("x")
    before = sorted(folder.iterdir())
    found = seen(watching)
    assert {arrival.state for arrival in found.values()} == {"refused"} and len(found) == 9
    for arrival in found.values():
        assert arrival.says.endswith(".") and "\n" not in arrival.says and arrival.name.encode()
    assert "plain file" in found["link.json"].says and "plain file" in found["pipe.json"].says
    assert "5,000,000 bytes" in found["large.json"].says and "another version" in found["other.json"].says
    assert sorted(folder.iterdir()) == before and not store.count(kind=None)


def test_one_file_that_breaks_the_reader_does_not_keep_the_others_out(watching, folder, monkeypatch):
    (folder / "a.json").write_text("x")
    (folder / "b.jsonl").write_bytes(WHOLE)
    monkeypatch.setattr("kvviz.store.files.exchange.read", lambda data: 1 / 0)
    found = seen(watching)
    assert (found["a.json"].says, found["b.jsonl"].state) == ("It can't be read.", "taken")


def test_a_comparison_is_kept_with_its_runs_and_a_folder_that_goes_is_said(watching, folder, store):
    (folder / "r.json").write_bytes(gzip.decompress((ASSETS / "live" / "h100-gpt2.json.gz").read_bytes()))
    found = seen(watching)["r.json"]
    assert found.says == "gpt2 on NVIDIA H100 80GB HBM3: No cache, KV cache, Compiled." and all(
        map(store.run, found.runs)
    )
    folder.rename(folder.parent / "moved")
    watching.look()
    assert watching.problem == "The watched folder can't be read (FileNotFoundError)."
    (folder.parent / "moved").rename(folder)
    assert seen(watching, 1)["r.json"].state == "taken"


def test_a_folder_of_many_files_shows_the_newest(watching, folder, monkeypatch):
    monkeypatch.setattr("kvviz.server.inbox.MOST_FILES", 3)
    clock = count(10**9)
    for number in range(5):
        (folder / f"{number}.json").write_text("{}")
        os.utime(folder / f"{number}.json", (0, next(clock)))
    assert list(seen(watching)) == ["4.json", "3.json", "2.json"]


def test_without_a_folder_nothing_is_watched(store):
    idle = Inbox(None, lambda: store)
    idle.start()
    idle.look()
    idle.close()
    assert idle.arrivals == []
