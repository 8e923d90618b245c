"""Counted work against torch's flop counter: every family of the catalog, small, and our own modes on real weights."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers.utils import logging

from bench.flops import compared, difference
from kvviz.base.errors import ConfigError
from kvviz.cost.flops import cached_step, flops, prefill, total_flops
from kvviz.cost.shape import read_shape
from kvviz.decoding.modes import mode_named
from kvviz.models.catalog.rows import models
from kvviz.models.config_fields import families
from tests.draws import ORDINARY, one_of_each, spread
from tests.tiny_configs import READ, TINY, ways_of_keeping

FAMILIES = sorted({row.config["model_type"] for row in models().values()})
CASE = {"tokens": 31, "batch": 3}  # longer than the windows
_SMALL = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "vocab_size": 130,
    "max_position_embeddings": 256,
    "sliding_window": 8,
    "pad_token_id": 0,
}
_OWN = {
    "bloom": {"num_key_value_heads": None},
    "cohere": {"layer_types": None},
    "deepseek_v2": {**TINY["deepseek_v3"], "norm_topk_prob": False},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]], "num_hidden_layers": 4, "window_size": 8},
    "gpt_oss": {"head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2},
    "gptj": {"rotary_dim": 4},
    "glm": {"head_dim": 8},
    "glm4_moe": {**TINY["deepseek_v3"], "head_dim": 8},
    "minicpm3": {**TINY["deepseek_v3"]},
    "minimax_m2": {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "mpt": {"n_heads": 6, "d_model": 48, "n_layers": 3},
    "opt": {"ffn_dim": 80, "word_embed_proj_dim": 20},
    "qwen3_moe": {"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
    | {"mlp_only_layers": [1]},
    "recurrent_gemma": {"num_key_value_heads": 1, "num_hidden_layers": 3, "attention_window_size": 8},
    "smollm3": {"no_rope_layers": [1, 0, 1]},
}


def small(model_type):
    """A config of a family of a few thousand parameters, under the names that the family uses."""
    if model_type in READ and model_type not in _OWN:
        return TINY[model_type]
    own = _OWN.get(model_type, {})
    names = families()[model_type].get("aliases", {})
    fields = {**_SMALL, **own} if own.get("model_type") is None else dict(own)
    return {names.get(name, name): value for name, value in fields.items()} | {"model_type": model_type}


@pytest.fixture(autouse=True, scope="module")
def _quiet():
    logging.set_verbosity_error()


@pytest.mark.slow
@pytest.mark.parametrize("model_type", spread(sorted({*FAMILIES, *READ} - {"openai-gpt"}), 20))
def test_the_count_is_the_counters(model_type):
    config = small(model_type)
    source = {"source_tokens": 9} if config.get("is_encoder_decoder") or model_type in ("t5", "bart", "whisper") else {}
    assert difference(read_shape(config), config, {**CASE, **source}) == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny-gpt2", "tiny-llama", "tiny-mistral", "tiny-gemma3"])
def test_our_modes_compute_what_is_counted(load, name):
    loaded = load(name, attn="eager")  # the counter does not know the fused kernels of a CPU
    shape = read_shape(loaded.source.config)
    ids = torch.randint(0, 100, (2, 21))
    counted = {}
    for mode in ("uncached", "cached"):
        forward = mode_named(mode).open(loaded.model, 21)
        with torch.inference_mode():
            forward(ids[:, :-1], ids[:, :-1])
            with FlopCounterMode(display=False) as counter:
                forward(ids, ids[:, -1:] if mode == "cached" else ids)
        counted[mode] = counter.get_total_flops()
    assert counted["cached"] == total_flops(shape, cached_step(shape, 21, 2))
    assert counted["uncached"] == total_flops(shape, prefill(shape, 21, 2))


@pytest.mark.slow
def test_a_type_in_all_cases():
    row = compared("bloom", alone=True)
    assert (row["outcome"], row["why"]) == ("exact", "")
    assert compared("xlm", alone=True)["outcome"] == "refused by the formula"


def test_a_wrong_width_is_found():
    config = TINY["llama"]
    assert difference(read_shape({**config, "intermediate_size": 65}), config, CASE).startswith("prefill: ")


ODD = (None, 0, -1, 3, 2**50, 0.5, "x", [], [7], {}, True)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", one_of_each(sorted(READ), lambda name: ways_of_keeping(TINY[name])))
def test_odd_fields_end_in_a_count_or_a_sentence(model_type):
    config = small(model_type)
    for place, name in enumerate(name for name in config if name != "model_type"):
        for value in ODD[place % 3 :: 3] if ORDINARY else ODD:
            try:
                shape = read_shape({**config, name: value})
                assert all(part >= 0 for part in flops(shape, prefill(shape, 5)).values())
            except ConfigError as error:
                assert "\n" not in str(error) and len(str(error)) < 300
