"""Decoding from scratch as a mode: the same proof as the others, on the very weights that were loaded."""

import pytest
from transformers import MistralConfig, MistralForCausalLM

from kvviz import compare
from kvviz.base.errors import KvvizError


@pytest.mark.slow
def test_the_whole_proof():
    done = compare("mini-gpt2", modes=("uncached", "cached", "scratch"), new_tokens=24, repeats=1).document
    _, cached, scratch = done["runs"]
    assert done["identical"] and scratch["exact"] and scratch["repeatable"]
    assert scratch["token_ids"] == cached["token_ids"] and scratch["max_abs_logit_diff"] < 1e-3
    assert scratch["cache_class"] == "LayerCache"
    for name in ("layers", "cache_bytes"):
        assert scratch[name] == cached[name]
    assert scratch["outliving_bytes"] == scratch["allocated_bytes"] == scratch["cache_bytes"]
    memory = scratch["memory"]
    assert memory["formula"] == memory["tensors"] == memory["storages"] == memory["allocator"]["kept"]


@pytest.mark.slow
def test_a_model_of_ones_own(pair):
    theirs = pair("alibi").theirs
    done = compare(theirs, modes=("uncached", "scratch"), prompt_tokens=9, new_tokens=12, batch=2, repeats=1)
    assert done.document["identical"]


def test_a_model_of_ones_own_that_it_can_not_be():
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 32}
    own = MistralForCausalLM(MistralConfig(**sizes, num_hidden_layers=1, vocab_size=64, sliding_window=8))
    with pytest.raises(KvvizError, match="sliding window of 8 tokens"):
        compare(own.eval(), modes=("uncached", "scratch"), prompt_tokens=4, new_tokens=2, repeats=1)
