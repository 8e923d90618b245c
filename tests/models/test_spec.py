"""The closed form: what a config says about each layer's cache."""

import pytest

from kvviz.base.errors import ConfigError
from kvviz.base.words import human
from kvviz.memory.formula import kv_memory
from kvviz.models import spec
from kvviz.models.catalog.rows import models
from kvviz.models.layers import LayerSpec
from kvviz.models.spec import ModelSpec


def spec_of(model):
    row = models()[model]
    return ModelSpec.from_config(row.config, name=row.id, source=row.source)


# Bytes that one token takes in half precision: layers x 2 x KV heads x head dim x 2, from the published configs.
PER_TOKEN = {
    "gpt2": 36_864,
    "gpt2-medium": 98_304,
    "gpt2-large": 184_320,
    "gpt2-xl": 307_200,
    "llama-2-7b": 524_288,
    "llama-3.1-8b": 131_072,
    "llama-3.1-70b": 327_680,
    "llama-3.1-405b": 516_096,
    "llama-3.2-1b": 32_768,
    "llama-3.2-3b": 114_688,
    "qwen2.5-0.5b": 12_288,
    "qwen2.5-7b": 57_344,
    "qwen2.5-72b": 327_680,
    "qwen3-0.6b": 114_688,
    "qwen3-4b": 147_456,
    "qwen3-32b": 262_144,
    "qwen3-30b-a3b": 98_304,
    "mistral-7b-v0.3": 131_072,
    "deepseek-v3": 70_272,
}


@pytest.mark.parametrize(("model", "expected"), PER_TOKEN.items())
def test_bytes_of_one_token(model, expected):
    assert kv_memory(spec_of(model), 1, dtype="bfloat16", view="architecture").total_bytes == expected


# https://blog.google/technology/developers/gemma-3 (windows of 1,024, one full layer in six); gpt-oss: every second.
WINDOWED = {
    "gemma-3-27b": (131_072, 11_173_625_856),
    "gemma-2-9b": (8_192, 2_113_929_216),
    "gpt-oss-20b": (131_072, 3_224_371_200),
}


@pytest.mark.parametrize(("model", "case"), WINDOWED.items())
def test_windows_are_counted(model, case):
    tokens, expected = case
    assert kv_memory(spec_of(model), tokens, dtype="bfloat16", view="architecture").total_bytes == expected


def test_layer_kinds_of_gemma_3():
    kinds = [layer.kind for layer in spec_of("gemma-3-27b").layers]
    assert (kinds.count("full"), kinds.count("sliding")) == (10, 52)
    assert kinds[:6] == ["sliding"] * 5 + ["full"]


def test_latent_layers_keep_one_row():
    assert set(spec_of("deepseek-v3").layers) == {LayerSpec("latent", 1, 512, 64, latent=True)}


def test_a_window_holds_one_token_less_while_transformers_decodes():
    spec = ModelSpec("one", (LayerSpec("sliding", 2, 16, 16, window=16),))
    held = {
        view: [kv_memory(spec, n, view=view).layers[0].held for n in (3, 16, 40)]
        for view in ("architecture", "hf-dynamic")
    }
    assert held == {"architecture": [3, 16, 16], "hf-dynamic": [3, 15, 15]}


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"n_layer": None}, "num_hidden_layers"),
        ({"n_head": 7}, "7 attention heads"),
        ({"n_head": -1}, "num_attention_heads|n_head"),
        ({"n_embd": "768"}, "n_embd"),
        ({"n_layer": True}, "n_layer"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
    ],
)
def test_a_config_that_can_not_be_read_is_refused_by_field(change, names):
    with pytest.raises(ConfigError, match=names):
        ModelSpec.from_config({**models()["gpt2"].config, **change})


def test_what_is_no_config_is_refused():
    with pytest.raises(ConfigError, match="JSON object"):
        ModelSpec.from_config([1, 2])


def test_bytes_for_people():
    assert [human(n) for n in (1, 28_672, 2**30, 3 * 2**41)] == ["1 B", "28.0 KiB", "1.0 GiB", "6.00 TiB"]


def test_a_config_is_read_once_and_read_anew_when_it_is_another(monkeypatch):
    read, kept = [], spec.decoder_fields
    monkeypatch.setattr(spec, "decoder_fields", lambda config: read.append(config) or kept(config))
    config = {"model_type": "llama", "num_hidden_layers": 3, "num_attention_heads": 4, "hidden_size": 56}
    first, again = (ModelSpec.from_config(config, name="read once") for _ in range(2))
    assert again is first and len(read) == 1
    config["num_hidden_layers"] = 5
    assert [len(one.layers) for one in (first, ModelSpec.from_config(config, name="read once"))] == [3, 5]
    assert ModelSpec.from_config(config, name="another").name == "another"
    assert len(ModelSpec.from_config({**config, "rope_theta": {1, 2}}).layers) == 5, "what no file can hold"
