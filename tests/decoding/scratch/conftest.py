"""Tiny models of transformers, one a way of building a decoder, each with its twin from scratch on the same weights."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from kvviz.decoding.scratch.load import from_transformers

VOCABULARY = 96
# Wide enough weights that a text doesn't repeat one token, which a broken cache would repeat as well.
_WIDE = {"vocab_size": VOCABULARY, "initializer_range": 0.2, "bos_token_id": None, "eos_token_id": None}
_LLAMA = {
    **_WIDE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
}
_GPT2 = {**_WIDE, "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 128}
_SCALED = {"rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 32}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", _GPT2),
    "gpt2, exact gelu, head of its own": (
        "gpt2",
        {**_GPT2, "activation_function": "gelu", "n_inner": 80, "tie_word_embeddings": False},
    ),
    "multi-query with learned positions": ("gpt_bigcode", _GPT2),
    "llama, grouped queries": ("llama", _LLAMA),
    "llama, a head of keys for each": ("llama", {**_LLAMA, "num_key_value_heads": 4, "tie_word_embeddings": True}),
    "llama, one head of keys, biases": (
        "llama",
        {**_LLAMA, "num_key_value_heads": 1, "attention_bias": True, "mlp_bias": True, "head_dim": 24},
    ),
    "llama 3's long context": (
        "llama",
        {**_LLAMA, "rope_parameters": {**_SCALED, "rope_type": "llama3", "low_freq_factor": 1, "high_freq_factor": 4}},
    ),
    "positions closer together": ("llama", {**_LLAMA, "rope_parameters": {**_SCALED, "rope_type": "linear"}}),
    "mistral without a window": ("mistral", {**_LLAMA, "sliding_window": None, "head_dim": 32}),
    "qwen2": ("qwen2", _LLAMA),
    "qwen3": ("qwen3", {**_LLAMA, "head_dim": 32, "tie_word_embeddings": True}),
    "alibi": (
        "mpt",
        {**_WIDE, "d_model": 96, "n_heads": 6, "n_layers": 3, "max_seq_len": 128},
    ),
    "alibi, a power of two": ("mpt", {**_WIDE, "d_model": 64, "n_heads": 4, "n_layers": 3, "max_seq_len": 128}),
}


@pytest.fixture(autouse=True, scope="package")
def one_thread():
    """Small products are slower on many threads than on one, most of all on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True)
class Pair:
    """A model of transformers and the same from scratch."""

    theirs: Any
    ours: Any


@pytest.fixture(scope="session")
def pair():
    """`pair("qwen3")` is that row, built once."""
    built: dict[str, Pair] = {}

    def get(name):
        if name not in built:
            model_type, fields = FAMILIES[name]
            built[name] = make(AutoConfig.for_model(model_type, **fields))
        return built[name]

    return get


def make(config, seed=0):
    """Random weights, the biases and norms' weights random too: at 0 and 1 a forgotten one would not be missed."""
    torch.manual_seed(seed)
    theirs = AutoModelForCausalLM.from_config(config).eval()
    for name, parameter in theirs.named_parameters():
        if parameter.dim() == 1:
            mean, std = (0.0, 0.1) if name.endswith("bias") else (1.0, 0.3)
            torch.nn.init.normal_(parameter, mean, std)
    return Pair(theirs, from_transformers(theirs))


@torch.no_grad()
def written(loop, model, prompt, new_tokens):
    """A loop of `mistakes`, greedily: (B, T) -> (B, T + new_tokens)."""
    chosen = []

    def choose(index, logits):
        chosen.append(logits.argmax(-1, keepdim=True))
        return chosen[-1]

    list(loop(model, prompt, choose, new_tokens))
    return torch.cat([prompt, *chosen], dim=1)


def token_ids(batch=1, length=40, seed=1):
    return torch.randint(0, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(seed))
