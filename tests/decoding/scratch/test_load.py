"""Weights by name, as checkpoints on the Hub have them, and the bundled models."""

import gc
import weakref

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from kvviz.base.errors import KvvizError
from kvviz.decoding.scratch.fused import FusedAttention
from kvviz.decoding.scratch.load import from_tensors, from_transformers, shared_twin
from kvviz.decoding.scratch.mistakes import right
from kvviz.models.sources import BUNDLED
from tests.decoding.scratch.conftest import FAMILIES, make, token_ids, written


@pytest.mark.parametrize("name", ["mini-gpt2", "mini-qwen3"])
@torch.no_grad()
def test_the_bundled_models(name):
    theirs = AutoModelForCausalLM.from_pretrained(BUNDLED / name, local_files_only=True).eval()
    ours = from_transformers(theirs)
    ids = torch.randint(0, theirs.config.vocab_size, (2, 64), generator=torch.Generator().manual_seed(2))
    assert (ours(ids) - theirs(ids).logits).abs().max() < 1e-4
    settings = {"max_new_tokens": 40, "min_new_tokens": 40, "do_sample": False}
    expected = theirs.generate(ids[:1], attention_mask=torch.ones_like(ids[:1]), **settings)
    assert written(right, ours, ids[:1], 40).equal(expected)


@torch.no_grad()
def test_one_twin_serves_all_decodes_until_a_weight_moves_or_the_model_is_gone():
    theirs = make(AutoConfig.for_model("gpt2", **FAMILIES["gpt2"][1])).theirs
    twin = shared_twin(theirs)
    assert shared_twin(theirs) is twin
    weight = theirs.transformer.h[0].ln_1.weight
    weight.data = weight.data * 2  # a new tensor, as an adapter or another precision would bring
    assert shared_twin(theirs) is not twin
    assert (shared_twin(theirs)(token_ids()) - theirs(token_ids()).logits).abs().max() < 1e-4
    gone = weakref.ref(shared_twin(theirs))
    del theirs, twin, weight
    gc.collect()
    assert gone() is None


@torch.no_grad()
@pytest.mark.parametrize("family", FAMILIES)
def test_the_fused_twin_computes_the_same_with_a_cache_and_without(pair, family):
    both, ids = pair(family), token_ids(batch=2, length=12)
    fused = shared_twin(both.theirs, FusedAttention)
    assert fused is not shared_twin(both.theirs) and fused is shared_twin(both.theirs, FusedAttention)
    expected, caches = both.ours(ids), fused.new_caches()
    parts = [fused(part, caches) for part in ids.split([5, 4, 1, 1, 1], dim=1)]  # a prefill, a part, single tokens
    assert (torch.cat(parts, dim=1) - expected).abs().max() < 1e-4
    assert (fused(ids) - expected).abs().max() < 1e-4


@pytest.fixture
def checkpoint(pair):
    """The config and the tensors, by name, of GPT-2's family."""
    theirs = pair("gpt2").theirs
    return theirs.config.to_dict(), theirs.state_dict()


@torch.no_grad()
def test_names_without_their_first_part(checkpoint, pair):
    """GPT-2's published file says h.0.ln_1.weight, not transformer.h.0.ln_1.weight."""
    config, tensors = checkpoint
    ours = from_tensors(config, {name.removeprefix("transformer."): one for name, one in tensors.items()})
    assert (ours(token_ids()) - pair("gpt2").theirs(token_ids()).logits).abs().max() < 1e-4


def test_what_is_missing_or_does_not_fit_is_named(checkpoint):
    config, tensors = checkpoint
    bias = tensors.pop("transformer.h.1.mlp.c_fc.bias")
    with pytest.raises(KvvizError, match=r"no transformer\.h\.1\.mlp\.c_fc\.bias"):
        from_tensors(config, tensors)
    with pytest.raises(KvvizError, match=r"blocks\.1\.mlp\.up\.bias is \(255,\) and should be \(256,\)"):
        from_tensors(config, {**tensors, "transformer.h.1.mlp.c_fc.bias": bias[:-1]})


def test_a_config_that_is_refused_is_refused_before_its_weights_are_read(checkpoint):
    config, _ = checkpoint
    with pytest.raises(KvvizError, match="scale_attn_by_inverse_layer_idx"):
        from_tensors({**config, "scale_attn_by_inverse_layer_idx": True}, {})
