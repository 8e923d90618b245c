"""Whatever is thrown at the reader of configs: an answer, or one ConfigError sentence, and nothing else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.base.errors import ConfigError
from kvviz.memory.calculator import pack, slim, unpack
from kvviz.memory.formula import kv_memory
from kvviz.models.catalog.rows import models
from kvviz.models.config_fields import families
from kvviz.models.sources import parse_config
from kvviz.models.spec import ModelSpec
from tests.draws import draws

ROWS = {row.id: row.config for row in models().values()}
TYPES = sorted(families())
NAMES = sorted(
    {name for row in families().values() for name in row.get("defaults", {})} | {"text_config", "per_layer_config"}
)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 300),
    st.sampled_from([-1, 0, 1, 2**31, 2**40, 2**63, 10**400]),
    st.floats(),
    st.sampled_from(
        ["", "auto", "full_attention", "sliding_attention", "linear_attention", "hybrid", "M*-E", "all", "12"]
    ),
    st.text(max_size=8),
)
junk = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.sampled_from(NAMES), inner, max_size=5)),
    max_leaves=12,
)


def read(config):
    """A spec that can be summed, or None for a refusal; anything else is the test's failure."""
    try:
        spec = ModelSpec.from_config(config)
        for view in ("architecture", "hf-dynamic", "vllm", "llama.cpp"):
            try:
                memory = kv_memory(spec, 100, view=view)
                assert 0 <= memory.total_bytes <= max(memory.reserved_bytes, memory.total_bytes)
            except ConfigError as error:
                sentence(error)
    except ConfigError as error:
        return sentence(error)
    return spec


def sentence(error):
    text = str(error)
    assert text and len(text) < 400 and "\n" not in text and "Error" not in text, text


MANY = draws(100)


@pytest.mark.slow
@MANY
@given(st.sampled_from(TYPES), st.dictionaries(st.sampled_from(NAMES), junk, max_size=12))
def test_any_fields_of_any_type(model_type, fields):
    read({**fields, "model_type": model_type})


@pytest.mark.slow
@MANY
@given(st.sampled_from(sorted(ROWS)), st.dictionaries(st.sampled_from(NAMES), junk, min_size=1, max_size=3))
def test_a_real_config_with_fields_replaced(model, changes):
    config = ROWS[model]
    if isinstance(config.get("text_config"), dict):
        config = {**config, "text_config": {**config["text_config"], **changes}}
    read({**config, **changes})


@pytest.mark.slow
@draws(75)
@given(st.sampled_from(sorted(ROWS)), st.data())
def test_a_real_config_with_fields_left_out(model, data):
    config = ROWS[model]
    gone = data.draw(st.sets(st.sampled_from(sorted(config)), max_size=4))
    read({key: value for key, value in config.items() if key not in gone})


@pytest.mark.slow
@draws(75)
@given(junk)
def test_what_is_no_config_at_all(value):
    if not isinstance(value, dict):
        with pytest.raises(ConfigError):
            ModelSpec.from_config(value)
    else:
        read(value)


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({}, "model_type"),
        ({"model_type": "llama"}, "num_hidden_layers"),
        ({"model_type": 7}, "model_type"),
        ({"model_type": "llama", "num_hidden_layers": -3}, "num_hidden_layers"),
        ({"model_type": "llama", "num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"model_type": "llama", "num_hidden_layers": "32"}, "num_hidden_layers"),
        ({"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": float("nan")}, "num_attention_heads"),
        ({"model_type": "gpt2", "n_layer": 2, "n_head": 5, "n_embd": 64}, "5 attention heads do not divide"),
        ({"model_type": "gpt2", "n_layer": 2, "layer_types": ["x", "y"]}, "layer_types"),
        (
            {"text_config": {"text_config": {"text_config": {"text_config": {"text_config": {"text_config": {}}}}}}},
            "itself",
        ),
        ({"model_type": "bert", "num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12}, "is_decoder"),
        ({"_class_name": "UNet2DConditionModel", "in_channels": 4}, "_class_name"),
        (
            {"model_type": "llama", "auto_map": {"AutoModel": "modeling_x.X"}, "num_hidden_layers": 0},
            "num_hidden_layers",
        ),
    ],
)
def test_the_sentence_names_the_field(config, names):
    with pytest.raises(ConfigError, match=names):
        ModelSpec.from_config(config)


def test_remote_code_is_left_alone():
    config = {**ROWS["gpt2"], "auto_map": {"AutoConfig": "configuration_evil.Evil"}}
    assert ModelSpec.from_config(config).layers == ModelSpec.from_config(ROWS["gpt2"]).layers


@pytest.mark.parametrize(
    "text", ["", "no", "[1, 2]", '"gpt2"', "NaN", "{" * 100_000, '{"a": ' * 100_000, '{"a": 1,}', "\0"]
)
def test_what_is_no_json_object(text):
    with pytest.raises(ConfigError):
        parse_config(text)


def test_ten_megabytes_are_refused_before_they_are_read():
    with pytest.raises(ConfigError, match="larger than"):
        parse_config('{"a": "' + "x" * 10_000_000 + '"}')


@pytest.mark.slow
@pytest.mark.parametrize("model", sorted(ROWS))
def test_a_link_keeps_a_config_and_its_spec(model):
    config = ROWS[model]
    again = unpack(pack(slim(config)))
    assert ModelSpec.from_config(again).layers == ModelSpec.from_config(config).layers


@pytest.mark.parametrize("word", ["z:", "z:!!!!", "z:abcd", "z:" + "A" * 5000, pack({"a": [1]})[:-4]])
def test_a_broken_link_is_one_sentence(word):
    with pytest.raises(ConfigError):
        config = unpack(word)
        json.dumps(config)
