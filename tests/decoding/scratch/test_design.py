"""Reading configs: what can be built, what is refused and with which words."""

import pytest
import torch

from kvviz.base.errors import KvvizError
from kvviz.decoding.loading import built, hf_config
from kvviz.decoding.scratch.design import FAMILIES, TENSORS, Rope, design_of
from kvviz.decoding.scratch.load import from_tensors
from kvviz.models.catalog.rows import model_row, models
from tests.tiny_configs import TINY


def test_a_published_config_in_numbers():
    design = design_of(model_row("qwen3-4b").config)
    assert (design.layers, design.width, design.heads, design.kv_heads, design.head_dim) == (36, 2560, 32, 8, 128)
    assert (design.positions, design.norm, design.activation, design.gated, design.qk_norm, design.tied) == (
        ("rotary", "rms", "silu", True, True, True)
    )


def test_ropes_fields_are_found_where_older_and_newer_files_keep_them():
    sizes = TINY["llama"]
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    expected = Rope(5e5, "llama3", 8.0, 1.0, 4.0, 64)
    newer = {**sizes, "rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", **scaling}}
    older = {**sizes, "rope_theta": 5e5, "rope_scaling": {"type": "llama3", **scaling}}
    assert design_of(newer).rope == design_of(older).rope == expected
    assert design_of(sizes).rope == Rope(10_000.0)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("tiny-mistral", "layer 0 attends within a sliding window of 16 tokens"),
        ("gpt-neo-125m", "layer 1 attends within a sliding window of 256 tokens"),
        ("llama-4-scout", "chunks of 8,192 tokens"),
        ("deepseek-v3", "latent row"),
        ("qwen3-30b-a3b", "a choice of experts .num_experts is 128"),
        ("mixtral-8x7b", "a choice of experts"),
        ("mamba-130m", "a state instead of keys and values"),
        ("falcon-h1-7b", "a state beside keys and values"),
        ("whisper-tiny", "attends to an encoder"),
        ("bloom-560m", "it is a bloom, and what is written here are gpt2, .*qwen3"),
    ],
)
def test_a_model_of_another_kind_is_refused_with_the_reason(model, says):
    with pytest.raises(KvvizError, match=f"from scratch can't be this model: .*{says}"):
        design_of(model_row(model).config)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
            "RoPE is scaled by 'yarn', and default, linear, llama3",
        ),
        ({"rope_parameters": {"rope_theta": "many"}}, "RoPE is no number"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "only a part of each head"),
        ({"head_dim": 15}, "15 numbers, and RoPE rotates pairs"),
        ({"hidden_act": "relu"}, "activation 'relu' is none of gelu"),
        ({"hidden_act": ["silu"]}, "activation .* is none of gelu"),
        ({"quantization_config": {"bits": 4}}, "quantized"),
        (
            {"model_type": "gpt2", "n_embd": 32, "n_head": 4, "scale_attn_by_inverse_layer_idx": True},
            "scale_attn_by_inv",
        ),
        ({"model_type": "gpt_bigcode", "n_embd": 32, "n_head": 4, "multi_query": False}, "multi_query is False"),
        ({"model_type": "mpt", "attn_config": {"clip_qkv": 8}}, "clip_qkv is 8, and only None"),
    ],
)
def test_a_field_that_computes_otherwise_is_refused_by_name(changes, says):
    with pytest.raises(KvvizError, match=says):
        design_of({**TINY["llama"], **changes})


def test_a_decoder_inside_a_larger_model_is_refused():
    with pytest.raises(KvvizError, match="part of a larger model, 'llava'"):
        design_of({"model_type": "llava", "text_config": TINY["llama"]})


def test_whatever_is_no_config_is_one_sentence():
    for config in (
        {},
        {"model_type": 3},
        {"model_type": "gpt2", "n_layer": "x"},
        {"model_type": "llama", "vocab_size": -1},
    ):
        with pytest.raises(KvvizError) as refused:
            design_of(config)
        assert len(str(refused.value).splitlines()) == 1


def test_every_catalog_model_is_built_or_refused():
    taken = []
    for row in models().values():
        try:
            taken.append(design_of(row.config).family)
        except KvvizError as error:
            assert len(str(error).splitlines()) == 1
    assert len(taken) >= 40 and set(taken) == set(FAMILIES) == set(TENSORS) and all(TENSORS.values())


@pytest.mark.parametrize(
    "model", ["gpt2-medium", "starcoder", "tinyllama-1.1b", "mistral-nemo-12b", "qwen2.5-0.5b", "qwen3-0.6b", "mpt-7b"]
)
def test_published_shapes_fit(model):
    """On the meta device: names and shapes at their true sizes, no weights."""
    with torch.device("meta"):
        theirs = built(hf_config(model_row(model).config))
    ours = from_tensors(theirs.config.to_dict(), theirs.state_dict())
    head = ours.head.weight.numel() if ours.design.tied else 0  # a tied head is listed twice here
    assert sum(p.numel() for p in ours.parameters()) - head == sum(p.numel() for p in theirs.parameters())
