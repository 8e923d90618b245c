"""One contract for every way of building a decoder: the same logits as transformers', however the tokens are fed."""

import copy

import pytest
import torch

from kvviz.decoding.scratch.load import from_transformers
from kvviz.decoding.scratch.mistakes import right, right_without_cache
from tests.decoding.scratch.conftest import FAMILIES, token_ids, written

LENGTH = 40
CHUNKS = {
    "prefill": [LENGTH],
    "uneven chunks": [1, 13, 2, 24],
    "prefill, then decode": [29] + [1] * 11,
    "decode from the first token": [1] * LENGTH,
}
TOLERANCE = 1e-4


@pytest.fixture(params=FAMILIES)
def both(request, pair):
    return pair(request.param)


@torch.no_grad()
def fed_in(model, ids, chunks):
    """Logits of all positions, the tokens given in chunks, each with the cache of those before it."""
    caches = model.new_caches()
    logits = torch.cat([model(part, caches) for part in ids.split(chunks, dim=1)], dim=1)
    assert [cache.seen for cache in caches] == [ids.shape[1]] * len(caches)
    return logits


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 3])
@torch.no_grad()
def test_logits_are_those_of_transformers(both, batch):
    ids = token_ids(batch, LENGTH)
    expected = both.theirs(ids).logits
    assert expected.std() > 0.5, "logits near 0 would agree whatever is done"
    assert (both.ours(ids) - expected).abs().max() < TOLERANCE
    for name, chunks in CHUNKS.items():
        assert (fed_in(both.ours, ids, chunks) - expected).abs().max() < TOLERANCE, name


@pytest.mark.slow
def test_tokens_are_the_same_with_and_without_a_cache(both):
    prompt = token_ids(2, 12)
    text = written(right_without_cache, both.ours, prompt, 24)
    assert text.shape == (2, 36) and text[:, :12].equal(prompt)
    assert len(set(text[:, 12:].flatten().tolist())) >= 10, "a text that repeats one token would prove nothing"
    assert written(right, both.ours, prompt, 24).equal(text)
    settings = {"max_new_tokens": 24, "min_new_tokens": 24, "do_sample": False, "pad_token_id": 0}
    assert both.theirs.generate(prompt, attention_mask=torch.ones_like(prompt), **settings).equal(text)


def test_weights_are_shared_not_copied(both):
    known = {tensor.untyped_storage().data_ptr() for tensor in both.theirs.parameters()}
    assert {tensor.untyped_storage().data_ptr() for tensor in both.ours.parameters()} == known


@torch.no_grad()
def test_a_cache_keeps_the_key_and_value_heads_alone(both):
    design, caches = both.ours.design, both.ours.new_caches()
    both.ours(token_ids(3, 9), caches)
    both.ours(token_ids(3, 4), caches)
    shape = (3, design.kv_heads, 13, design.head_dim)
    assert [(cache.k.shape, cache.v.shape) for cache in caches] == [(shape, shape)] * design.layers


@pytest.mark.parametrize("name", ["gpt2", "qwen3", "alibi"])
@torch.no_grad()
def test_half_precision_keeps_to_its_rounding(pair, name):
    ids = token_ids(2, 30)
    exact = pair(name).theirs(ids).logits
    theirs = copy.deepcopy(pair(name).theirs).to(torch.bfloat16)
    ours = from_transformers(theirs)(ids)
    assert ours.dtype == torch.bfloat16
    assert (ours - exact).abs().mean() < 2 * (theirs(ids).logits - exact).abs().mean()
