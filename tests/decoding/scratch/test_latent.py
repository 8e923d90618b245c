"""Both orders of latent attention's product are the layer of transformers, and hold what they say."""

import math

import pytest
import torch

from kvviz.decoding.scratch.cache import LayerCache
from kvviz.decoding.scratch.latent import Absorbed, Expanded, LatentDesign, latent_twin
from kvviz.decoding.scratch.listing import listing
from kvviz.decoding.scratch.observe import watched

SIZES = {"B": 2, "T": 3, "T_total": 9, "H": 4, "Dn": 8, "Dr": 4, "Dv": 6, "C": 24, "W": 32}


@pytest.fixture(scope="module")
def theirs():
    """A layer of transformers, the norms' weights random too: at 1 a forgotten one would not be missed."""
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention, DeepseekV3Config

    names = {"W": "hidden_size", "H": "num_attention_heads", "C": "kv_lora_rank", "Dv": "v_head_dim"}
    names |= {"Dn": "qk_nope_head_dim", "Dr": "qk_rope_head_dim"}
    sizes = {name: SIZES[letter] for letter, name in names.items()}
    config = DeepseekV3Config(**sizes, num_key_value_heads=SIZES["H"], q_lora_rank=20, num_hidden_layers=1)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    layer = DeepseekV3Attention(config, 0).eval()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, float(parameter.dim() == 1), 0.3)
    return layer


@pytest.mark.parametrize("kind", [Expanded, Absorbed])
@torch.no_grad()
def test_it_is_the_layer_of_transformers_with_a_cache_and_a_chunk_of_new_tokens(theirs, kind):
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3RotaryEmbedding

    x = torch.randn(SIZES["B"], SIZES["T_total"], SIZES["W"])
    at = torch.arange(SIZES["T_total"])
    turns = DeepseekV3RotaryEmbedding(theirs.config)(x, at[None])
    mask = torch.full((1, 1, 9, 9), -math.inf).triu(1)
    expected, _ = theirs(x, turns, mask)

    ours, cache = latent_twin(theirs, LatentDesign.of(theirs.config.to_dict()), kind), LayerCache()
    first = ours(x[:, :6], at[:6], cache)
    with watched({0: ours}, kind, listing(kind.__name__, "latent.py")) as seen:
        rest = ours(x[:, 6:], at[6:], cache)
    assert torch.allclose(torch.cat([first, rest], dim=1), expected, atol=1e-4)
    assert expected.abs().max() > 1, "not equal because small"

    held = SIZES["C"] + SIZES["Dr"] if kind is Absorbed else SIZES["H"] * (SIZES["Dn"] + SIZES["Dr"] + SIZES["Dv"])
    assert cache.k.nbytes + cache.v.nbytes == SIZES["B"] * SIZES["T_total"] * held * 4
    for stage in listing(kind.__name__, "latent.py").stages:
        made = {name: tuple(value.shape) for name, value in seen[0][stage.name].items()}
        assert made == {name: in_numbers(shape, SIZES) for name, shape in stage.makes.items()}


def in_numbers(shape, sizes):
    """The sizes that the letters at the end of a line stand for, such as `B, H, T, Dn+Dr`."""
    return tuple(eval(part, {**sizes}) for part in shape.split(","))
