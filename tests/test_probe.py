"""Two independent ways to a cache's bytes: the closed form, and the model itself on the meta device."""

import pytest

from kvviz.catalog import models
from kvviz.errors import ConfigError
from kvviz.memory import kv_memory
from kvviz.probe import probe
from kvviz.spec import ModelSpec

ROWS = [row for row in models().values() if row.id not in ("deepseek-v3", "qwen3-235b-a22b", "gpt-oss-120b")]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_spec_and_probe_agree_to_the_byte(row):
    spec = ModelSpec.from_config(row.config, name=row.id)
    long = 5000 if any(layer.window for layer in spec.layers) else 41  # longer than any window here
    formula = kv_memory(spec, long, batch=2, view="hf-dynamic")
    asked = probe(row.config, tokens=long, batch=2)
    assert formula.total_bytes == asked.total_bytes
    assert formula.per_token_bytes == asked.per_token_bytes
    assert [layer.nbytes for layer in formula.layers] == [layer.nbytes for layer in asked.layers]
    assert formula.reserved_bytes == asked.reserved_bytes
    assert asked.weights_bytes == row.params * 2


@pytest.mark.parametrize("tokens", [1, 2, 15, 16, 17])
def test_they_agree_around_a_full_window(tokens):
    row = models()["tiny-gemma3"]
    formula = kv_memory(ModelSpec.from_config(row.config), tokens, view="hf-dynamic")
    assert formula.total_bytes == probe(row.config, tokens=tokens).total_bytes


def test_a_latent_cache_is_read_off_the_model():
    row = models()["deepseek-v3"]
    small = {**row.config, "num_hidden_layers": 2, "n_routed_experts": 8, "vocab_size": 128}
    assert probe(small, tokens=10).per_token_bytes == 2 * (512 + 64) * 2


@pytest.mark.parametrize("config", [{}, {"model_type": "vit"}, {"model_type": "llama", "num_hidden_layers": "two"}])
def test_what_can_not_be_probed_is_refused(config):
    with pytest.raises(ConfigError):
        probe(config, tokens=4)


@pytest.mark.parametrize(
    "wrong", [{"tokens": 0}, {"tokens": 1.5}, {"batch": -1}, {"dtype": "int3"}, {"view": "mine"}, {"tokens": True}]
)
def test_bad_numbers_are_refused(wrong):
    with pytest.raises(ConfigError):
        kv_memory(ModelSpec.from_config(models()["gpt2"].config), **{"tokens": 8, **wrong})
