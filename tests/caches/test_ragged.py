"""Sequences that share a forward: the logits of each alone, nothing left on the model, or a refusal."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from kvviz.base.errors import KvvizError
from kvviz.caches.block_table import OutOfBlocks
from kvviz.caches.layer_groups import LayerGroups
from kvviz.caches.ragged import Part, RaggedCache, has_to_be_padded
from tests.caches.conftest import FAMILIES, prompt_of
from tests.tiny_configs import TINY

IDS = [prompt_of(1, tokens, seed=tokens)[0].tolist() for tokens in (37, 5, 21)]


@pytest.mark.parametrize("name", FAMILIES)
def test_each_sequence_gets_the_logits_that_it_gets_alone(family, name):
    """In chunks of unequal length, in an order of their own, with a second round in which two only decode."""
    model, _ = family(name)
    assert not has_to_be_padded(model)
    attention, cache = model.config._attn_implementation, RaggedCache(model, 8)
    first, second, third = (cache.groups.start(ids)[0] for ids in IDS)
    with torch.inference_mode():
        cache.forward([Part(first, 0, IDS[0][:30]), Part(second, 0, IDS[1][:4]), Part(third, 0, IDS[2][:20])])
        parts = [Part(first, 30, IDS[0][30:]), Part(third, 20, IDS[2][20:]), Part(second, 4, IDS[1][4:])]
        together = cache.forward(parts)
        alone = torch.cat([model(torch.tensor([IDS[i]])).logits[:, -1] for i in (0, 2, 1)])
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-4)
    assert model.config._attn_implementation == attention, "something of the run stays on the model"


def test_an_error_in_a_forward_leaves_the_model_as_it_was(family):
    model, _ = family("gpt2")
    cache = RaggedCache(model, 1)
    with pytest.raises(OutOfBlocks):
        cache.forward([Part(cache.groups.start(IDS[0])[0], 0, IDS[0])])
    with pytest.raises(IndexError):
        cache.forward([Part(cache.groups.start([1])[0], 0, [10**6])])
    assert model.config._attn_implementation == "sdpa"


def test_eager_attention_is_taken_apart_as_well(family):
    model, _ = family("gemma3")
    model.set_attn_implementation("eager")
    try:
        assert not has_to_be_padded(model)
    finally:
        model.set_attn_implementation("sdpa")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("llama4_text", "layers that are not kept in these blocks: chunked_attention"),
        ("mamba", "layers that are not kept in these blocks: LinearAttentionLayer"),
        ("openai-gpt", "openai-gpt computes attention in a way of its own"),
        ("roberta", "its sequences can't share a forward"),
    ],
)
def test_a_model_that_cannot_keep_them_apart_is_refused(name, said):
    torch.manual_seed(0)
    config = AutoConfig.for_model(**{"model_type": name, **TINY[name], "initializer_range": 0.4})
    model = AutoModelForCausalLM.from_config(config).eval()
    with pytest.raises(KvvizError, match=said):
        has_to_be_padded(model)


def test_a_window_gives_blocks_back_and_a_full_layer_keeps_them():
    groups = LayerGroups((None, 20), blocks=10, block=4)
    sequence, hits = groups.start(list(range(30)))
    groups.append(sequence, list(range(30)))
    groups.append(sequence, [30])
    assert hits == 0 and groups.free == 2
    assert [tables.pool.used for tables in groups.tables.values()] == [8, 6], "30 - 20 + 1 tokens are behind: 2 blocks"
    groups.release(sequence)
    assert groups.start(list(range(30)))[1] == 28, "a hit in both groups"
