"""Spec against probe: the closed form and the model itself, for every kind of layer that there is."""

import pytest
from transformers.utils import logging

from bench.decoders import compared, counted, difference, markdown
from bench.default_configs import decoders, default_config, encoder_decoders
from kvviz.base.errors import ConfigError
from kvviz.decoding.meta_probe import position_limit
from kvviz.memory.formula import kv_memory
from kvviz.models.spec import ModelSpec
from tests.draws import ORDINARY
from tests.tiny_configs import READ, TINY

FIRST = {"tokens": 1, "batch": 1, "dtype": "float32"}
SHORT = {"tokens": 8, "batch": 1, "dtype": "float16"}  # as long as the windows
LONG = {"tokens": 23, "batch": 2, "dtype": "float32"}
ENDS = {name for name in READ if any(layer.window for layer in ModelSpec.from_config(TINY[name]).layers)}
CASES = [*((name, LONG) for name in READ), *((name, SHORT) for name in READ if name in ENDS or not ORDINARY)]
CASES += [("llama", SHORT), ("llama", FIRST), ("jamba", FIRST)]


@pytest.fixture(autouse=True, scope="module")
def _quiet():
    logging.set_verbosity_error()


@pytest.mark.slow
@pytest.mark.parametrize(("model_type", "case"), CASES)
def test_the_closed_form_is_what_the_model_keeps(model_type, case):
    config = TINY[model_type]
    case = {**case, "tokens": min(case["tokens"], position_limit(config) or case["tokens"])}
    ours, theirs, why = difference(ModelSpec.from_config(config), config, case)
    assert (why, ours) == ("", theirs)


@pytest.mark.slow
def test_at_full_size():
    config = default_config("granitemoehybrid")
    ours, theirs, why = difference(ModelSpec.from_config(config), config, {**LONG, "tokens": 5000})
    assert (why, ours) == ("", theirs)


@pytest.mark.slow
def test_a_type_in_all_cases():
    row = compared("gpt2", alone=True)
    assert (row["outcome"], row["why"], row["spec_bytes"]) == ("exact", "", row["probe_bytes"])


def test_an_encoder_is_as_long_as_one_says():
    spec = ModelSpec.from_config(TINY["t5"])
    case = {"tokens": 9, "batch": 2, "dtype": "float32", "source_tokens": 31}
    ours, theirs, why = difference(spec, TINY["t5"], case)
    assert (why, ours) == ("", theirs)
    assert ours > kv_memory(spec, 9, batch=2, dtype="float32", view="hf-dynamic", source_tokens=9).total_bytes


@pytest.mark.slow
def test_every_registered_type_has_a_config():
    types = decoders()
    assert len(types) > 150
    assert len(encoder_decoders()) > 30
    for name in types:
        assert default_config(name, alone=True)["model_type"] == default_config(name)["model_type"]


def test_what_one_side_refuses_is_not_counted_as_right(monkeypatch):
    def refuse(config, **case):
        raise ConfigError("not this one")

    monkeypatch.setattr("bench.decoders.position_limit", refuse)
    row = compared("llama", alone=True)
    assert (row["outcome"], row["why"]) == ("refused by probe", "not this one")
    assert counted([row]) == {"exact": 0, "wrong": 0, "refused": 1}


def test_a_wrong_byte_is_found(monkeypatch):
    config = TINY["llama"]
    spec = ModelSpec.from_config({**config, "head_dim": 8})
    ours, theirs, why = difference(spec, config, LONG)
    assert ours * 2 == theirs
    assert why.startswith("layer 0: ")


def test_the_table_says_who_refused():
    row = {"model_type": "x", "outcome": "refused by spec", "spec_bytes": None, "probe_bytes": None, "why": "a|b"}
    about = {"transformers": "5", "torch": "2"}
    page = markdown({"environment": about, "rows": [row], "encoder_decoders": {"rows": []}})
    assert "| x | refused by spec |  | a/b |" in page
