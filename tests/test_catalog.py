"""The catalog's rows against the library that would build them."""

import pytest

from kvviz.catalog import models
from kvviz.errors import KvvizError
from kvviz.models import count_params
from kvviz.sources import find_source


@pytest.mark.parametrize("row", models().values(), ids=lambda row: row.id)
def test_every_row_is_sourced_and_its_parameters_counted(row):
    assert row.source.startswith(("https://", "kvviz:"))
    assert count_params(row.config) == row.params


def test_tiny_models_are_tiny():
    assert all(row.params < 1_000_000 for row in models().values() if row.id.startswith("tiny-"))


def test_an_unknown_model_is_refused_with_near_ids():
    with pytest.raises(KvvizError, match="gpt2"):
        find_source("gtp2")


@pytest.mark.parametrize(
    ("model", "weights", "says"),
    [
        ("gpt2", "bundled", "does not come with kvviz"),
        ("gpt2", "local", "folder"),
        ("tiny-gpt2", "hub", "no Hugging Face id"),
        ("someone/something", "auto", "--weights hub"),
        ("a\0b", "auto", "null"),
    ],
)
def test_impossible_weights_get_one_sentence(model, weights, says):
    with pytest.raises(KvvizError, match=says):
        find_source(model, weights)


def test_auto_never_uses_the_network():
    assert find_source("gpt2").weights == "random"
    assert find_source("gpt2", "hub").hub == "openai-community/gpt2"
