"""export, import, run --pin and --check: files, ids, exit statuses."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvviz.cli import main as cli
from kvviz.experiments.comparison.pins import PinFiles, expected_of, key_of
from kvviz.store.db.store import Store
from kvviz.store.files import exchange, reading

ROOT = Path(__file__).resolve().parents[2]
RUN = ("run", "--model", "tiny-gpt2", "--new-tokens", "5", "--repeats", "2", "--mode", "uncached,cached")


def kvviz(home, *arguments):
    env = {**os.environ, "KVVIZ_HOME": str(home)}
    return subprocess.run(
        [sys.executable, "-m", "kvviz", *arguments], cwd=ROOT, env=env, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def ran(home):
    """A run that was pinned, kept and written to a file."""
    done = kvviz(home, *RUN, "--pin", "-o", str(home / "run.json"))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def measured(printed):
    """What a run's JSON holds besides the verdict, which each reader works out anew."""
    return {name: value for name, value in printed.items() if name != "verdict"}


@pytest.fixture
def here(home, monkeypatch, capsys):
    """`here("export", ...)`: the command in this process; (exit status, standard output, standard error)."""
    monkeypatch.setenv("KVVIZ_HOME", str(home))

    def here(*arguments):
        monkeypatch.setattr(sys, "argv", ["kvviz", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return (end.value.code, *capsys.readouterr())

    return here


def test_a_run_is_kept_and_written(ran, home):
    found = reading.read((home / "run.json").read_bytes())
    assert found.document == measured(ran)
    store = Store(home / "kvviz.sqlite")
    assert store.document(ran["id"]) == measured(ran)
    assert (store.get(ran["id"]).origin, store.get(ran["id"]).state) == ("run", "done")
    assert [json.loads(record) for record in store.records(ran["id"])] == found.records
    store.close()


@pytest.mark.parametrize("form", exchange.FORMATS)
def test_export_by_id_and_by_file(ran, here, home, tmp_path, form):
    for source, name in ((ran["id"], "a"), (str(home / "run.json"), "b")):
        target = tmp_path / f"{name}.{form}"
        assert here("export", source, "--format", form, "-o", str(target)) == (0, f"{target}\n", "")
    assert (tmp_path / f"a.{form}").read_bytes() == (tmp_path / f"b.{form}").read_bytes()


def test_import_gives_the_same_run_under_a_new_id(ran, here, home, tmp_path):
    printed = tmp_path / "printed.json"
    printed.write_text(json.dumps(ran))
    for file, records in ((home / "run.json", True), (printed, False)):
        status, out, err = here("import", str(file))
        assert (status, err) == (0, "")
        store = Store()
        document, stored = store.document(out.strip()), store.get(out.strip())
        assert (stored.origin, stored.title, stored.model) == ("import", file.stem, "tiny-gpt2")
        assert bool(store.records(out.strip())) == records
        store.close()
        assert out.strip() != ran["id"]
        assert [{**run, "id": 0} for run in document["runs"]] == [{**run, "id": 0} for run in ran["runs"]]
        assert {**document, "id": 0, "runs": 0} == {**measured(ran), "id": 0, "runs": 0}


def test_an_id_may_begin_with_a_dash(ran, here, home, tmp_path):
    store = Store(home / "kvviz.sqlite")
    found = reading.read((home / "run.json").read_bytes()).renamed("-Abc_9")
    exchange.keep(store, found, origin="here")
    store.close()
    assert here("export", "-Abc_9", "-o", str(tmp_path / "x.json"))[0] == 0


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
        ([*RUN, "--pin", "--check"], "one of --pin and --check"),
        ([*RUN, "--check", "--new-tokens", "4"], "no text is pinned"),
        ([*RUN, "--output", "/nowhere/x"], "can't be written"),
    ],
)
def test_what_can_not_be_done_is_one_sentence_and_status_2(ran, here, home, arguments, says):
    status, out, err = here(*(word.replace("{file}", str(home / "run.json")) for word in arguments))
    assert (status, out) == (2, "")
    assert says in err and len(err.splitlines()) == 1


def test_check_passes_and_then_fails_where_the_text_differs(ran, here, home, monkeypatch):
    """The measuring itself is taken from the file of the first run."""
    again = reading.read((home / "run.json").read_bytes()).renamed("again")
    monkeypatch.setattr(cli, "_perform", lambda work, **_: again)
    status, out, err = here(*RUN, "--check")
    assert (status, json.loads(out)["runs"][0]["text"]) == (0, ran["runs"][0]["text"])
    assert err == "kvviz: the text is the expected one (5 tokens)\n"
    other = copy.deepcopy(expected_of(ran))
    other["runs"][0]["token_ids"][2] += 1
    store = Store()
    store.pin(key_of(ran), other)
    store.close()
    monkeypatch.setattr(cli, "_perform", lambda work, **_: again.renamed("third"))
    status, out, err = here(*RUN, "--check")
    assert (status, json.loads(out)["identical"]) == (1, True)
    assert "kvviz: new token 3 is" in err and "apart there" in err and len(err.splitlines()) == 1


def test_a_store_that_fails_costs_no_result(ran, here, home, monkeypatch):
    """The same id again is what a store refuses; the run is printed all the same."""
    monkeypatch.setattr(cli, "_perform", lambda work, **_: reading.read((home / "run.json").read_bytes()))
    status, out, err = here(*RUN)
    assert (status, json.loads(out)) == (0, ran)
    assert "not kept" in err and len(err.splitlines()) == 1


def test_without_the_stores_packages(ran, here, home, tmp_path, monkeypatch):
    monkeypatch.setattr(cli, "find_spec", lambda name: None)
    assert "sqlalchemy" in here("import", str(home / "run.json"))[2]
    assert "sqlalchemy" in here("export", "some-id", "-o", "x")[2]
    assert here("export", str(home / "run.json"), "--format", "csv", "-o", str(tmp_path / "x.csv"))[0] == 0
    assert isinstance(cli._pins(), PinFiles)
