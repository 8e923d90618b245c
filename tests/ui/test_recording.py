"""The recording that the live page shows before anything has run: a real run of what its form asks for at first."""

import gzip
import json

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
