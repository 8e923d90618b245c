"""The model itself, asked for its cache without weights: it says what a real run of it keeps."""

import pytest
import torch
from transformers.utils import logging

from kvviz.base.errors import ConfigError
from kvviz.decoding.loading import hf_config
from kvviz.decoding.meta_model import built_eager
from kvviz.decoding.meta_probe import by_layer, position_limit, probe
from kvviz.decoding.read_cache import layer_states
from kvviz.memory.formula import kv_memory
from kvviz.models.catalog.rows import models
from kvviz.models.spec import ModelSpec
from tests.draws import ORDINARY, one_of_each
from tests.tiny_configs import TINY, ways_of_keeping

SMALLEST = {row.config["model_type"]: row for row in sorted(models().values(), key=lambda row: -row.params)}
COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
WHOLE = ("gemma-3n-e2b", "bamba-9b", "gpt-neo-125m")  # what their layers are, a list elsewhere in the config says
SOURCE = {"whisper": 50}  # tokens of an encoder, where they are not 11


@pytest.fixture(autouse=True, scope="module")
def _quiet():
    logging.set_verbosity_error()


def shortened(row):
    """A published config of its first eight layers, or two where all are said to keep the same; the widths stay."""
    most = 2 if ORDINARY and len(set(ModelSpec.from_config(row.config).layers)) == 1 else 8
    layers = next((row.config[name] for name in COUNTS if name in row.config), 0)
    if layers <= most or row.id in WHOLE:
        return row.config
    cut = {name: value[:most] for name, value in row.config.items() if isinstance(value, list) and len(value) == layers}
    return {**row.config, **cut, **{name: most for name in COUNTS if name in row.config}}


@pytest.mark.slow
@pytest.mark.parametrize(
    "row",
    one_of_each(sorted(SMALLEST.values(), key=lambda row: row.params), lambda row: ways_of_keeping(row.config)),
    ids=lambda row: row.id,
)
def test_spec_and_probe_agree_to_the_byte(row):
    """The smallest published model of each family, or way of keeping, in its first layers; the widths are its own."""
    config = shortened(row)
    spec = ModelSpec.from_config(config, name=row.id)
    long = 5000 if any(layer.window for layer in spec.layers) else 41  # longer than any window here
    long = min(long, spec.context or long)
    formula = kv_memory(spec, long, batch=2, view="hf-dynamic")
    asked = probe(config, tokens=long, batch=2)
    assert formula.total_bytes == asked.total_bytes
    assert formula.per_token_bytes == asked.per_token_bytes
    assert [layer.nbytes for layer in formula.layers] == [layer.nbytes for layer in asked.layers]
    assert formula.reserved_bytes == asked.reserved_bytes
    assert asked.weights_bytes == row.params * 2 or config is not row.config


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [1, 15, 16, 17])
def test_they_agree_around_a_full_window(tokens):
    row = models()["tiny-gemma3"]
    formula = kv_memory(ModelSpec.from_config(row.config), tokens, view="hf-dynamic")
    assert formula.total_bytes == probe(row.config, tokens=tokens).total_bytes


def generated(model_type, tokens, dtype, batch=2):
    """The cache that `generate` leaves after `tokens` tokens, on the CPU, with weights: its rows."""
    torch.manual_seed(0)
    model = built_eager(hf_config(TINY[model_type]), getattr(torch, dtype))
    prompt = torch.randint(3, 90, (batch, tokens - 1))
    given = {"input_ids": prompt}
    if model.config.is_encoder_decoder:
        prompt[:, 0] = model.generation_config.decoder_start_token_id
        given = {"decoder_input_ids": prompt, "input_ids": torch.randint(3, 90, (batch, 11))}
    if model_type == "whisper":
        sound = torch.randn(batch, 8, 100, dtype=model.dtype)
        given = {"decoder_input_ids": prompt, "input_features": sound}
    from transformers import GenerationMixin

    more = {"max_new_tokens": 2, "min_new_tokens": 2, "do_sample": False, "return_dict_in_generate": True}
    out = GenerationMixin.generate(model, **given, **more)
    names = ("past_key_values", "cache_params", "state", "past_buckets_states", "mems")
    cache = next(out[name] for name in names if out.get(name) is not None)
    return layer_states(by_layer(cache, model.config.get_text_config(decoder=True)), seen=tokens)


# 70 tokens are past a window and past a short prefill.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model_type", "tokens", "dtype"),
    [
        *((name, 70, "bfloat16") for name in one_of_each(TINY, lambda name: ways_of_keeping(TINY[name]))),
        ("gemma3_text", 9, "float32"),
    ],
)
def test_what_it_says_is_what_a_real_run_keeps(model_type, tokens, dtype):
    tokens = min(tokens, position_limit(TINY[model_type]) or tokens)
    dtype = "float32" if model_type in ("reformer", "xlnet") else dtype  # their code does not mix precisions
    asked = probe(TINY[model_type], tokens=tokens, batch=2, dtype=dtype, source_tokens=SOURCE.get(model_type, 11))
    real = generated(model_type, tokens, dtype)
    assert [(row.nbytes, row.state_bytes) for row in asked.layers] == [(row.nbytes, row.state_bytes) for row in real]
    assert [(row.key_shape, row.value_shape) for row in asked.layers] == [
        (row.key_shape, row.value_shape) for row in real
    ]
    assert [row.held for row in asked.layers] == [row.held for row in real]


def kinds(model_type, tokens=23):
    return [row.kind for row in probe(TINY[model_type], tokens=tokens).layers]


@pytest.mark.slow
def test_kinds_are_read_off_the_cache():
    assert kinds("llama") == ["full"] * 4
    assert kinds("gemma3_text") == ["sliding", "full"] * 2
    assert kinds("gemma3n_text") == ["sliding", "full", "sliding", "full", "shared", "shared"]
    assert kinds("lfm2") == ["linear", "full"] * 2
    assert kinds("falcon_h1") == ["hybrid"] * 4
    assert kinds("deepseek_v32") == ["indexed"] * 4
    assert kinds("nemotron_h") == ["linear", "none", "full", "none"]
    assert kinds("bart") == ["full"] * 3 + ["cross"] * 3
    assert kinds("openai-gpt") == kinds("xlm") == ["none"] * 2


def test_windows_and_tokens_are_in_the_rows():
    rows = probe(TINY["gemma3_text"], tokens=23).layers
    assert [(row.window, row.seen, row.held) for row in rows] == [(8, 23, 7), (None, 23, 23)] * 2
    assert {(row.seen, row.held) for row in probe(TINY["mamba"], tokens=23).layers} == {(23, 0)}


@pytest.mark.slow
def test_an_encoder_decoder_has_its_cross_attention_last():
    memory = probe(TINY["bart"], tokens=20, batch=2, source_tokens=30)
    assert [row.index for row in memory.layers] == [0, 1, 2, 0, 1, 2]
    assert [row.held for row in memory.layers] == [20] * 3 + [30] * 3
    assert memory.source_tokens == 30
    assert [row.held for row in probe(TINY["bart"], tokens=20).layers] == [20] * 6
    assert [row.held for row in probe(TINY["whisper"], tokens=20).layers] == [20] * 3 + [50] * 3
    assert probe(TINY["llama"], tokens=20, source_tokens=30).source_tokens is None


def test_a_decoder_alone_has_no_cross_attention():
    alone = {**TINY["bart"], "encoder_layers": 3, "is_encoder_decoder": False}
    assert [row.kind for row in probe(alone, tokens=20).layers] == ["full"] * 3


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["mamba2", "qwen3_next", "zamba2", "minimax", "rwkv"])
def test_a_state_makes_a_long_context_no_longer_to_probe(model_type):
    """Keys and values grow by the same bytes for every token, whatever stands in the way of feeding them all."""
    short, long = (probe(TINY[model_type], tokens=tokens) for tokens in (41, 131_072))
    assert long.total_bytes == short.total_bytes + (131_072 - 41) * short.per_token_bytes
    assert long.fixed_bytes == short.fixed_bytes


def test_a_latent_cache_is_read_off_the_model():
    row = models()["deepseek-v3"]
    small = {**row.config, "num_hidden_layers": 2, "n_routed_experts": 8, "vocab_size": 128}
    assert probe(small, tokens=10).per_token_bytes == 2 * (512 + 64) * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "limit", "field"),
    [
        (TINY["gpt2"], 64, "n_positions"),
        (TINY["roberta"], 254, "max_position_embeddings"),  # 256 rows, two of them for padding
        (TINY["bart"], 64, "max_position_embeddings"),
        (TINY["whisper"], 64, "max_target_positions"),
        ({"model_type": "opt", "max_position_embeddings": 99, "hidden_size": 48, "ffn_dim": 48}, 99, "max_position"),
        ({"model_type": "gptj", "n_positions": 40, "n_embd": 64, "n_layer": 2, "n_head": 4, "rotary_dim": 4}, 40, "n_"),
    ],
)
def test_a_table_of_positions_ends(config, limit, field):
    config = {"vocab_size": 96, **config}
    assert position_limit(config) == limit
    at_the_end = probe(config, tokens=limit, source_tokens=9)
    assert at_the_end.per_token_bytes > 0
    with pytest.raises(ConfigError, match=rf"tokens is {limit + 1}.*{field}"):
        probe(config, tokens=limit + 1, source_tokens=9)


def test_other_ends_are_named_too():
    with pytest.raises(ConfigError, match=r"source_tokens is 65.*max_position_embeddings"):
        probe(TINY["bart"], tokens=4, source_tokens=65)
    small = {"model_type": "mpt", "d_model": 32, "n_heads": 4, "n_layers": 2, "vocab_size": 96, "max_seq_len": 30}
    assert probe(small, tokens=30).per_token_bytes == 2 * 2 * 32 * 2
    with pytest.raises(ConfigError, match="31 tokens, more than its max_seq_len of 30"):
        probe(small, tokens=31)


def test_rotary_positions_have_no_end():
    assert position_limit(TINY["llama"]) is None
    assert probe(TINY["llama"], tokens=300).total_bytes == 300 * probe(TINY["llama"], tokens=1).total_bytes


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({}, "model_type"),
        ({"model_type": "vit"}, "vit"),
        ({"model_type": "llama", "num_hidden_layers": "two"}, "num_hidden_layers"),
        ({"model_type": "llama", "num_attention_heads": 0}, "can't read"),
        ({"model_type": "bert"}, "is_decoder"),
        ({"model_type": "no-such-model"}, "no-such-model"),
    ],
)
def test_what_can_not_be_probed_is_refused(config, says):
    with pytest.raises(ConfigError, match=says) as refusal:
        probe(config, tokens=4)
    assert "\n" not in str(refusal.value)


def test_a_draft_head_has_no_cache_of_its_own():
    from bench.default_configs import default_config

    found = probe(default_config("gemma4_assistant"), tokens=4)
    assert (found.total_bytes, {row.kind for row in found.layers}) == (0, {"shared"})


@pytest.mark.slow
def test_remote_code_is_not_run(tmp_path):
    code = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": f"{tmp_path}--evil.Model"}
    assert (
        probe({**TINY["llama"], "auto_map": code}, tokens=4).total_bytes == probe(TINY["llama"], tokens=4).total_bytes
    )


@pytest.mark.parametrize("wrong", [{"tokens": 0}, {"tokens": 1.5}, {"batch": -1}, {"dtype": "int3"}, {"tokens": True}])
def test_bad_numbers_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        probe(TINY["llama"], **{"tokens": 8, **wrong})
    with pytest.raises(ConfigError):
        kv_memory(ModelSpec.from_config(models()["gpt2"].config), **{"tokens": 8, **wrong})


def test_there_is_no_such_view():
    with pytest.raises(ConfigError, match="mine"):
        kv_memory(ModelSpec.from_config(models()["gpt2"].config), 8, view="mine")
