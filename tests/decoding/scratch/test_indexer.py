"""The indexer picks what transformers' indexer picks, with a cache and a chunk of new tokens."""

import math

import pytest
import torch

from kvviz.decoding.scratch.cache import LayerCache
from kvviz.decoding.scratch.indexer import Indexer, IndexerDesign, indexer_twin
from kvviz.decoding.scratch.listing import listing
from kvviz.decoding.scratch.observe import watched
from tests.decoding.scratch.test_latent import in_numbers

SIZES = {"B": 2, "T": 3, "T_total": 12, "W": 32, "Q": 16, "Hi": 8, "Di": 8, "most": 4}


@pytest.fixture(scope="module")
def built():
    """An indexer of transformers, the norm's weight and bias random too; its config; and how it turns positions."""
    from transformers.models.deepseek_v32 import modeling_deepseek_v32 as theirs

    names = {"W": "hidden_size", "Q": "q_lora_rank", "Hi": "index_n_heads", "Di": "index_head_dim"}
    sizes = {name: SIZES[letter] for letter, name in names.items()}
    config = theirs.DeepseekV32Config(**sizes, index_topk=SIZES["most"], qk_rope_head_dim=4, num_hidden_layers=1)
    torch.manual_seed(0)
    layer = theirs.DeepseekV32Indexer(config, 0).eval()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, 0.5 * (parameter.dim() == 1), 0.5)
    return layer, config, theirs.DeepseekV32RotaryEmbedding(config)


@torch.no_grad()
def test_it_picks_the_same_tokens(built):
    theirs, config, turns = built
    total, new = SIZES["T_total"], SIZES["T"]
    x, compressed = torch.randn(2, total, SIZES["W"]), torch.randn(2, total, SIZES["Q"])
    at = torch.arange(total)
    mask = torch.full((1, total, total), -math.inf).triu(1)
    expected = theirs(x, compressed, turns(x, at[None]), mask, at[None])

    ours, cache = indexer_twin(theirs, IndexerDesign.of(config.to_dict())), LayerCache()
    ours(x[:, :-new], compressed[:, :-new], at[:-new], cache)
    source = listing("Indexer", "indexer.py")
    with watched({0: ours}, Indexer, source) as seen:
        picked = ours(x[:, -new:], compressed[:, -new:], at[-new:], cache)
    assert picked.sort().values.equal(expected[:, -new:].long().sort().values)
    assert len({tuple(row.tolist()) for row in picked.sort().values.flatten(0, 1)}) > 3, "they pick different tokens"
    for stage in source.stages:
        made = {name: tuple(value.shape) for name, value in seen[0][stage.name].items()}
        assert made == {name: in_numbers(shape, {**SIZES, "T_total": total}) for name, shape in stage.makes.items()}
