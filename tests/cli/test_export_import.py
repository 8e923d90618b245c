"""`kvviz export` and `kvviz import`: files and ids."""

import json

import pytest

from kvviz.cli import files
from kvviz.store.db.store import Store
from kvviz.store.files import exchange, reading
from tests.experiments.sweep.test_spec import GRID, elsewhere


@pytest.mark.parametrize("form", exchange.FORMATS)
def test_export_by_id_and_by_file(ran, home, kvviz, tmp_path, form):
    for source, name in ((ran["id"], "a"), (str(home / "run.json"), "b")):
        target = tmp_path / f"{name}.{form}"
        done = kvviz("export", source, "--format", form, "-o", str(target))
        assert (done.status, done.out, done.err) == (0, f"{target}\n", "")
    assert (tmp_path / f"a.{form}").read_bytes() == (tmp_path / f"b.{form}").read_bytes()


def test_import_gives_the_same_run_under_a_new_id(ran, home, kvviz, tmp_path):
    printed = tmp_path / "printed.json"
    printed.write_text(json.dumps(ran))
    for file, records in ((home / "run.json", True), (printed, False)):
        done = kvviz("import", str(file))
        assert (done.status, done.err) == (0, "")
        new_id, store = done.out.strip(), Store()
        document, stored = store.document(new_id), store.get(new_id)
        assert (stored.origin, stored.title, stored.model) == ("import", file.stem, "tiny-gpt2")
        assert bool(store.records(new_id)) == records
        store.close()
        assert new_id != ran["id"]
        assert [{**run, "id": 0} for run in document["runs"]] == [{**run, "id": 0} for run in ran["runs"]]
        without = {name: value for name, value in ran.items() if name != "verdict"}
        assert {**document, "id": 0, "runs": 0} == {**without, "id": 0, "runs": 0}


def test_several_files_are_taken_in_and_each_bad_one_is_a_sentence(ran, home, kvviz, tmp_path):
    journal, bad = tmp_path / "grid.jsonl", tmp_path / "bad.json"
    journal.write_bytes(elsewhere(GRID)[:-40])
    bad.write_text("{}")
    done = kvviz("import", str(home / "run.json"), str(bad), str(journal), "--json")
    found = json.loads(done.out)
    assert done.status == 2 and len(done.err.splitlines()) == 1 and "bad.json: this file is no comparison" in done.err
    assert found["id"] == found["ids"][0] and found["ids"][1] is None
    store = Store()
    kept = store.get(found["ids"][2])
    assert (kept.kind, kept.state, kept.title) == ("sweep", "stopped", "A grid (tiny-gpt2), grid")
    store.close()


def test_an_id_may_begin_with_a_dash(home, kvviz, tmp_path):
    store = Store(home / "kvviz.sqlite")
    found = reading.read((home / "run.json").read_bytes()).renamed("-Abc_9")
    exchange.keep(store, found, origin="here")
    store.close()
    assert kvviz("export", "-Abc_9", "-o", str(tmp_path / "x.json")).status == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["export", "nothing", "-o", "x"], "no comparison 'nothing'"),
        (["export", "{file}", "--format", "docx", "-o", "x"], "json, csv, parquet, html"),
        (["export", "{file}", "-o", "/nowhere/x"], "can't be written"),
        (["export", "{file}"], "--output"),
        (["import", "/nowhere"], "can't be read"),
        (["import", "README.md"], "not JSON"),
        (["import", "/"], "can't be read"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(refused, home, arguments, says):
    refused(says, *(word.replace("{file}", str(home / "run.json")) for word in arguments))


def test_without_the_stores_packages_files_alone_can_be_had(refused, home, kvviz, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "find_spec", lambda name: None)
    refused("sqlalchemy", "import", str(home / "run.json"))
    refused("sqlalchemy", "export", "some-id", "-o", "x")
    assert kvviz("export", str(home / "run.json"), "--format", "csv", "-o", str(tmp_path / "x.csv")).status == 0
