"""The published schemas: real documents fit them, and what the reader refuses for a field's type or range does not."""

import copy
import json

import jsonschema
import pytest

from kvviz import compare
from kvviz.store.files.json_schemas import SCHEMAS, schema
from kvviz.store.files.reading import to_json


def fits(name, value):
    validator = jsonschema.Draft202012Validator(schema(name))
    return not list(validator.iter_errors(value))


@pytest.fixture(scope="module")
def whole():
    """A comparison as a file, with a layer of each of two modes, as any reader gets it."""
    done = compare("tiny-gpt2", new_tokens=3, repeats=1)
    return json.loads(to_json(done.records, done.document))


@pytest.mark.parametrize("name", SCHEMAS)
def test_each_is_a_schema(name):
    jsonschema.Draft202012Validator.check_schema(schema(name))


def test_a_real_comparison_fits(whole):
    assert fits("file", whole) and fits("comparison", whole["document"])
    kinds = {record["t"] for record in whole["records"] if fits("record", record)}
    assert kinds == {record["t"] for record in whole["records"]} >= {"started", "proof", "times", "clocked", "done"}


def test_a_recording_fits_and_a_comparison_needs_its_document(whole):
    assert fits("file", {"kvviz": "recording", "version": 1, "records": whole["records"]})
    assert not fits("file", {name: value for name, value in whole.items() if name != "document"})


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("batch", 0),
        ("reference", "Not a name"),
        ("runs", {}),
        ("identical", 1),
        ("prompt_tokens", 1.5),
        ("model", None),
    ],
)
def test_what_the_reader_refuses_fits_no_schema(whole, field, wrong):
    assert not fits("comparison", {**whole["document"], field: wrong})
    assert not fits("comparison", {name: value for name, value in whole["document"].items() if name != field})


def test_it_reaches_into_the_layers(whole):
    broken = copy.deepcopy(whole["document"])
    broken["runs"][1]["layers"][0]["held"] = -1
    assert not fits("comparison", broken)


def test_a_journals_lines_fit():
    line = {"t": "cell_pass", "cell": 0, "mode": "cached", "round": 0, "s": [0.1], "same": True}
    assert fits("sweep-record", line) and not fits("sweep-record", {**line, "s": ["0.1"]})
