"""The static edition in node: the calculator's bytes and a run's figures are Python's. The folder is small."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kvviz.base.errors import KvvizError
from kvviz.base.precision import PRECISIONS
from kvviz.cli.static import static
from kvviz.experiments.comparison.figures import figures_record
from kvviz.experiments.registry import kind_of
from kvviz.memory.calculator import Asked, answer
from kvviz.models.catalog.rows import models
from kvviz.store.files.browser import from_browser
from kvviz.ui.static_edition.folder import OWN_VIEWS, anatomy_of, write
from tests.draws import ORDINARY
from tests.ui.test_engine import ENVIRONMENT

MOST_BYTES = 6_000_000
NEW_TOKENS = 6
TOKENS = (1, 17, 4_099, 200_000)


def questions():
    """Ask for every model of the catalog, with the choices in turn: once, or ten times (make test-long)."""
    choices = [(v, d, t, b) for t in TOKENS for v in OWN_VIEWS for d in PRECISIONS for b in (1, 3)]
    for number, name in enumerate(models()):
        for again in range(1 if ORDINARY else 10):
            view, dtype, tokens, batch = choices[(7 * number + 31 * again) % len(choices)]
            yield Asked((name,), tokens=tokens, batch=batch, dtype=dtype, view=view, weights="int4")


def in_node(asked):
    names = ("tokens", "batch", "dtype", "view", "weights")
    return {"model": asked.models[0], **{name: getattr(asked, name) for name in names}}


@pytest.fixture(scope="module")
def edition(bench, tmp_path_factory):
    folder = tmp_path_factory.mktemp("static") / "edition"
    spec = anatomy_of("mini-gpt2")
    write(folder, "mini-gpt2", list(kind_of(spec).runner()(spec, bench())))
    return folder


@pytest.fixture(scope="module")
def found(edition):
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed, which runs the static edition's scripts")
    job = {"asked": [in_node(one) for one in questions()], "new_tokens": NEW_TOKENS, "environment": ENVIRONMENT}
    command = [node, "--experimental-default-type=module", str(Path(__file__).with_name("static.mjs")), str(edition)]
    ran = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_the_calculators_answers_are_pythons_byte_for_byte(found):
    differ, refused = [], 0
    for asked, mine in zip(questions(), found["answers"], strict=True):
        known = answer(asked, asked.models[0])
        if known.memory is None:
            refused += 1
            assert mine["problem"] == known.problem
            continue
        document = json.loads(json.dumps(known.memory.to_dict()))
        text = json.dumps({name: document[name] for name in mine})
        if text != json.dumps(mine):
            differ.append(asked)
    assert differ == []
    assert refused < len(found["answers"]) * 0.8


@pytest.mark.parametrize("number", [0, 1])
def test_a_runs_figures_are_pythons(found, number):
    run = found["runs"][number]
    mine, over = run["ending"]
    known = figures_record(from_browser(run["records"]).document)
    assert over == {"t": "done", "message": ""} and [one["mode"] for one in mine["runs"]] == ["uncached", "cached"]
    for one, other in zip(mine["runs"], known["runs"], strict=True):
        expected = {name: value for name, value in other.items() if name in one}
        assert set(other) - set(one) <= {"shape", "repeatable"}
        close = {name: v for name, v in expected.items() if isinstance(v, float | list)}
        assert one == {**expected, **{name: pytest.approx(v, rel=1e-12) for name, v in close.items()}}
    low, high = mine["runs"][1]["speedup_interval"]
    assert low < mine["runs"][1]["speedup"] < high
    assert mine["runs"][1]["passes"]["disturbed"] == number


def test_the_folder_is_small_and_holds_all_that_its_scripts_import(edition):
    assert sum(path.stat().st_size for path in edition.rglob("*") if path.is_file()) < MOST_BYTES
    for script in (edition / "assets").rglob("*.js"):
        if "vendor" not in script.parts:
            imports = re.findall(r'from "(\.[^"]+)"', script.read_text(encoding="utf-8"))
            assert all((script.parent / name).resolve().is_file() for name in imports), script
    page = (edition / "index.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in page and "connect-src 'self'" in page
    assert all((edition / name).is_file() for name in re.findall(r'(?:src|href)="([a-z][^":]*)"', page))


def test_what_it_shows_is_what_the_server_shows(edition):
    data = json.loads((edition / "data.json").read_text(encoding="utf-8"))
    assert [record["t"] for record in data["anatomy"]] == ["look", "anatomy", "done"]
    assert data["anatomy"][1]["heads"] == list(range(data["anatomy"][1]["design"]["heads"])), (
        "no server to ask for more"
    )
    assert [model["id"] for model in data["models"]] == list(models())
    assert {stop["page"] for stop in data["tour"]} == {"anatomy", "live", "memory"}


def test_what_can_not_be_written_is_said(edition, tmp_path):
    with pytest.raises(KvvizError, match="is not empty"):
        static(edition)  # before it measures
    (tmp_path / "file").touch()
    with pytest.raises(KvvizError, match="is not empty"):
        write(tmp_path / "file", "mini-gpt2", [])
    with pytest.raises(KvvizError, match="can't be written"):
        write(tmp_path / "file" / "below", "mini-gpt2", [])
    with pytest.raises(KvvizError, match="comes with kvviz"):
        anatomy_of("gpt2")
