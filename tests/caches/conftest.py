"""Models of two layers, one a way of keeping keys and values, with weights wide enough that texts don't repeat."""

from collections import Counter

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from kvviz.models.spec import ModelSpec
from tests.tiny_configs import TINY

_WIDE = {
    "initializer_range": 0.4,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
FAMILIES = {
    "gpt2": {**TINY["gpt2"], "n_positions": 128},  # every head its own keys, learned positions
    "llama": {**TINY["llama"], "num_hidden_layers": 2},  # grouped queries, RoPE
    "qwen3": {**TINY["llama"], "model_type": "qwen3", "num_hidden_layers": 2, "head_dim": 16},
    "mistral": {**TINY["mistral"], "num_hidden_layers": 2, "sliding_window": 20},  # nothing but windows
    "mistral, wide": {**TINY["mistral"], "num_hidden_layers": 1, "sliding_window": 70},  # wider than int8's residual
    "gemma3": {**TINY["gemma3_text"], "num_hidden_layers": 2, "sliding_window": 20},  # windows and full layers in turn
    "deepseek_v3": {**TINY["deepseek_v3"], "num_hidden_layers": 2},  # latent rows: keys and values of unequal width
}


@pytest.fixture(autouse=True, scope="package")
def one_thread():
    """Small products are slower on many threads than on one, most of all on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def family():
    """`family("llama")` is that model and its spec, built once."""
    built = {}

    def get(name):
        if name not in built:
            fields = {**FAMILIES[name], **_WIDE}
            torch.manual_seed(3)
            config = AutoConfig.for_model(**fields)
            model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
            built[name] = model, ModelSpec.from_config(model.config.to_dict())
        return built[name]

    return get


def prompt_of(batch, tokens, seed=5):
    """Seeded random ids, (B, T)."""
    return torch.randint(0, 96, (batch, tokens), generator=torch.Generator().manual_seed(seed))


def check(tables):
    """The pool agrees with all tables."""
    pool, owners = tables.pool, Counter(block for table in tables.sequences.values() for block in table.blocks)
    assert [owners[block] for block in range(len(pool.refs))] == pool.refs, "a count differs from the tables"
    assert set(pool.free) == {block for block, refs in enumerate(pool.refs) if not refs}, "free and unused differ"
    assert {h: block for block, h in pool._hashes.items()} == pool._cached, "a hash leads to another block"
    for table in tables.sequences.values():
        assert len(table.blocks) + table.dropped == -(-table.length // tables.block), "blocks and length differ"
