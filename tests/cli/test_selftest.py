"""`kvviz selftest`: its report, its file, its exit status."""

import json

import pytest

from kvviz.cli import selftest
from kvviz.experiments.comparison.figures import finished
from kvviz.experiments.comparison.run import perform
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.selftest.children import NAMES, Found
from kvviz.store.files.reading import read

pytestmark = pytest.mark.slow


@pytest.fixture
def found(load, monkeypatch):
    """`found(name=ok)`: the checks answer so; a comparison was really measured."""
    loaded = load("tiny-gpt2")
    spec = ComparisonSpec("tiny-gpt2", prompt_tokens=4, new_tokens=3, repeats=1)
    document, records = finished(list(perform(spec, loaded, comparison_id="selftest")))
    figures = {"repeats": {"document": document, "records": records}, "place": {"environment": {"device": "cpu"}}}

    def answering(**wrong):
        row = [Found(name, wrong.get(name, True), f"{name} was seen", figures.get(name, {})) for name in NAMES]
        monkeypatch.setattr(selftest, "checks", lambda device, names: iter(row))

    return answering


def test_the_report_names_every_check_and_the_file_is_a_run(kvviz, found, home):
    found(clock=None)
    done = kvviz("selftest", "--json", "-o", str(home / "report.json"))
    assert done.document["ok"] and [check["name"] for check in done.document["checks"]] == list(NAMES)
    assert done.document["checks"][NAMES.index("clock")] == {"name": "clock", "ok": None, "says": "clock was seen"}
    assert done.document["environment"] == {"device": "cpu"} and "classroom" in done.document
    kept = (home / "report.json").read_bytes()
    assert json.loads(kept)["checks"] == done.document["checks"]
    assert [run["mode"] for run in read(kept).document["runs"]] == ["uncached", "cached"]


def test_one_that_fails_is_marked_and_is_the_exit_status(kvviz, found, home):
    found(graph=False, clock=None)
    done = kvviz("selftest", "-o", str(home / "report.json"))
    assert done.status == 1
    assert "✗ graph: graph was seen" in done.out and "– clock" in done.out and "✓ memory" in done.out


def test_a_device_that_is_not_here_is_refused(kvviz, home):
    done = kvviz("selftest", "--device", "cuda:9", "-o", str(home / "none.json"))
    assert done.status == 2 and "'cuda:9' is not on this machine" in done.err and not (home / "none.json").exists()
