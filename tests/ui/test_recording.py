"""The recording that the live page shows before anything has run: a real run of what its form asks for at first."""

import gzip
import json
import shutil
import subprocess

import pytest

from kvviz.experiments.comparison.spec import OPENING_TOKENS, ComparisonSpec, opening
from kvviz.models.sources import first_model
from kvviz.store.files import reading
from kvviz.ui.folders import ASSETS


@pytest.fixture(scope="module")
def recording():
    return json.loads(gzip.decompress((ASSETS / "live" / "recording.json.gz").read_bytes()))


def test_it_is_what_the_form_asks_for_at_first(recording):
    started = recording["records"][0]
    assert ComparisonSpec.from_dict(started["spec"]) == opening(first_model())
    assert started["environment"]["device_name"] and recording["made"]
    assert reading.checked(recording["records"])


def test_it_shows_the_curves_part(recording):
    figures = recording["records"][-2]["runs"]
    assert [run["identical"] for run in figures] == [True, True]
    last = {mode: [] for mode in ("uncached", "cached")}
    for record in recording["records"]:
        if record["t"] == "times" and record["repeat"] >= 0:
            last[record["mode"]] += [s for i, s in enumerate(record["s"], record["from"]) if i >= OPENING_TOKENS - 16]
    uncached, cached = (sorted(seconds)[len(seconds) // 2] for seconds in last.values())
    assert uncached > 4 * cached


PACES = """
import {{ pace, paceWords }} from "{file}"
console.log(JSON.stringify([0.75, 0.1, 2, 20, 60].map((seconds) => [pace(seconds), paceWords(pace(seconds))])))
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="node runs the page's script")
def test_a_run_too_quick_to_follow_is_shown_slower_and_says_so():
    script = PACES.format(file=(ASSETS / "live" / "pace.js").as_uri())
    command = ["node", "--input-type=module", "-e", script]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)
    assert found[0] == [0.125, "shown 8 times slower"]
    assert found[1][0] == pytest.approx(0.1 / 6) and found[1][1] == "shown 60 times slower"
    assert found[2:] == [[1, ""], [1, ""], [3, "shown 3 times as fast"]], "up to 25 seconds at its own speed"
