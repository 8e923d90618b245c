"""Greedy decoding without and with a cache, side by side: all tokens again at every step, or the new one alone."""

import torch
from torch import Tensor

from kvviz.decoding.scratch.model import Transformer


@torch.no_grad()
def without_cache(model: Transformer, prompt: Tensor, new_tokens: int) -> Tensor:
    """(B, T) -> (B, T + new_tokens): every step reads the whole sequence again."""
    ids = prompt
    for _ in range(new_tokens):
        logits = model(ids)  # (B, T so far, vocabulary)
        ids = torch.cat([ids, chosen(logits)], dim=1)
    return ids


@torch.no_grad()
def with_cache(model: Transformer, prompt: Tensor, new_tokens: int) -> Tensor:
    """(B, T) -> (B, T + new_tokens): the prefill reads the prompt, each decode step one token."""
    ids, new, caches = prompt, prompt, model.new_caches()
    for _ in range(new_tokens):
        logits = model(new, caches)  # (B, T of the new ones, vocabulary)
        new = chosen(logits)
        ids = torch.cat([ids, new], dim=1)
    return ids


def chosen(logits: Tensor) -> Tensor:
    """Choose the likeliest next token: (B, T, vocabulary) -> (B, 1)."""
    return logits[:, -1:].argmax(dim=-1)
