"""Real configs with fields changed at random: formula and probe agree to the byte, or one of them refuses.

A table of answers per model type would fail here: heads, widths, windows, ranks, layer kinds and state sizes are drawn,
several at once, and the probe asks the model that transformers builds of them.
"""

import pytest
from hypothesis import Phase, given, reject
from hypothesis import strategies as st

from kvviz.base.errors import ConfigError
from kvviz.decoding.meta_probe import probe
from kvviz.memory.formula import kv_memory
from kvviz.models.catalog.rows import models
from kvviz.models.layer_kinds import CHUNKED, CONV, FULL, LINEAR, SLIDING
from kvviz.models.spec import ModelSpec
from tests.draws import ORDINARY, draws

HEADS = (1, 2, 3, 4, 6, 8, 12, 16)
VALUES = {
    "num_attention_heads": HEADS,
    "n_head": HEADS,
    "num_key_value_heads": (None, *HEADS),
    "num_kv_heads": HEADS,
    "multi_query": (True, False),
    "new_decoder_architecture": (True, False),
    "hidden_size": (96, 192, 384),
    "n_embd": (96, 192, 384),
    "head_dim": (None, 16, 24, 32, 80),
    "v_head_dim": (16, 24, 48),
    "sliding_window": (None, 2, 7, 16, 33, 4096),
    "use_sliding_window": (True, False),
    "max_window_layers": (0, 1, 3, 50),
    "sliding_window_pattern": (1, 2, 3, 6),
    "attention_chunk_size": (8, 16, 64),
    "no_rope_layer_interval": (2, 3),
    "kv_lora_rank": (16, 40, 64),
    "qk_rope_head_dim": (8, 16),
    "mamba_d_state": (8, 16),
    "mamba_d_conv": (2, 4),
    "mamba_expand": (1, 2, 3),
    "state_size": (8, 16),
    "conv_kernel": (2, 4),
    "expand": (1, 2, 3),
    "linear_num_value_heads": (2, 4, 8),
    "linear_num_key_heads": (1, 2),
    "linear_key_head_dim": (8, 16),
    "linear_value_head_dim": (8, 24),
    "linear_conv_kernel_dim": (2, 4),
    "conv_L_cache": (2, 3, 5),
    "num_kv_shared_layers": (0, 1, 2),
    "attn_layer_period": (2, 3, 4),
    "attn_layer_offset": (0, 1),
}
LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
LISTS = ("layer_types", "layers_block_type", "hybrid_override_pattern", "attn_layer_indices", "mlp_layer_types")
# One of each family is enough; these take long or are no plain decoders.
LEFT_OUT = ("mamba-codestral-7b", "recurrentgemma-2b", "minimax-text-01")
BY_TYPE = {row.config["model_type"]: row.id for row in models().values()}
BASES = [model for model in BY_TYPE.values() if model not in LEFT_OUT]


@st.composite
def perturbed(draw):
    """A config of the catalog with a few layers and one to four fields drawn anew."""
    model = draw(st.sampled_from(BASES))
    config = dict(models()[model].config)
    inner = dict(config.get("text_config") or config)
    count = draw(st.integers(2, 7))
    for name in LAYERS:
        if name in inner:
            inner[name] = count
    for name in LISTS:
        if name in inner:
            inner[name] = inner[name][:count] if isinstance(inner[name], list | str) else inner[name]
    names = sorted(set(VALUES) & (set(inner) | {"sliding_window", "head_dim", "num_key_value_heads"}))
    for name in draw(st.sets(st.sampled_from(names), min_size=1, max_size=4)):
        inner[name] = draw(st.sampled_from(VALUES[name]))
    if draw(st.integers(0, 3)) == 0:
        kinds = _kinds(inner)
        inner["layer_types"] = draw(st.lists(st.sampled_from(kinds), min_size=count, max_size=count))
    return {**config, "text_config": inner} if config.get("text_config") else inner


def _kinds(config):
    kinds = [FULL]
    if config.get("sliding_window"):
        kinds.append(SLIDING)
    if config.get("attention_chunk_size"):
        kinds.append(CHUNKED)
    if config.get("linear_num_value_heads"):
        kinds.append(LINEAR)
    if config.get("conv_L_cache"):
        kinds.append(CONV)
    return kinds


@pytest.mark.slow
@draws(12, derandomize=ORDINARY, database=None, phases=[Phase.generate])
@given(perturbed(), st.integers(1, 60), st.sampled_from([1, 3]), st.sampled_from(["float32", "bfloat16"]))
def test_formula_and_probe_agree_or_one_refuses(config, tokens, batch, dtype):
    try:
        spec = ModelSpec.from_config(config)
        said = kv_memory(spec, tokens, batch=batch, dtype=dtype, view="hf-dynamic")
        real = probe(config, tokens=tokens, batch=batch, dtype=dtype)
    except ConfigError:
        reject()
    assert said.total_bytes == real.total_bytes
    assert [row.nbytes for row in said.layers] == [row.nbytes for row in real.layers]


def test_hidden_over_heads_would_be_caught():
    """The naive reading of a head dim is wrong here, and formula and probe agree on another one."""
    config = {**models()["qwen3-4b"].config, "num_hidden_layers": 2}
    naive = 2 * 5 * 2 * 8 * (config["hidden_size"] // config["num_attention_heads"]) * 2
    real = probe(config, tokens=5).total_bytes
    assert real != naive
    assert kv_memory(ModelSpec.from_config(config), 5).total_bytes == real
