"""The decode loop, right and wrong: every mistake that a first KV cache makes, really made.

Each is a loop of its own, a generator that yields a Turn after every forward, on the same weights as the right one.
`pitfalls` says of each what to look at, which line is at fault and how it is mended.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kvviz.decoding.scratch.attention import causal
from kvviz.decoding.scratch.cache import LayerCache
from kvviz.decoding.scratch.model import Transformer

CHUNK = 4  # tokens of the prompt that a chunked prefill reads at a time
OLD_PROMPT = 6  # tokens of another prompt, left in a cache that is used again

Choose = Callable[[int, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Turn:
    """After a forward: the last position's logits (B, vocabulary), None while a prompt is not yet all read; the ids

    that it read (B, T); the caches that the loop holds now.
    """

    logits: torch.Tensor | None
    read: torch.Tensor
    caches: list[Any]


Loop = Callable[[Transformer, torch.Tensor, Choose, int], Iterator[Turn]]


# --- right -----------------------------------------------------------------------------------------------------


def right(model, prompt, choose, steps):
    """Prefill once, then one token a step."""
    caches = model.new_caches()
    new = prompt
    for index in range(steps):
        logits = model(new, caches)
        yield Turn(logits[:, -1], new, caches)
        new = choose(index, logits[:, -1])


def right_in_chunks(model, prompt, choose, steps, mask=causal):
    """The prompt a few tokens at a time, then one token a step."""
    caches = model.new_caches()
    pieces = prompt.split(CHUNK, dim=1)
    for piece in pieces[:-1]:
        model(piece, caches, mask=mask)
        yield Turn(None, piece, caches)
    new = pieces[-1]
    for index in range(steps):
        logits = model(new, caches, mask=mask)
        yield Turn(logits[:, -1], new, caches)
        new = choose(index, logits[:, -1])


def right_without_cache(model, prompt, choose, steps):
    """Everything again at every step."""
    ids = prompt
    for index in range(steps):
        logits = model(ids)
        yield Turn(logits[:, -1], ids, [])
        ids = torch.cat([ids, choose(index, logits[:, -1])], dim=1)


# --- wrong -----------------------------------------------------------------------------------------------------


def positions_stand_still(model, prompt, choose, steps):
    caches = model.new_caches()
    new = prompt
    for index in range(steps):
        at = torch.arange(new.shape[1], device=new.device)
        logits = model(new, caches, at=at)
        yield Turn(logits[:, -1], new, caches)
        new = choose(index, logits[:, -1])


def square_mask(model, prompt, choose, steps):
    def mask(T, T_total, device):
        return torch.ones(T, T, dtype=torch.bool, device=device).tril()

    yield from right_in_chunks(model, prompt, choose, steps, mask)


def mask_without_offset(model, prompt, choose, steps):
    def mask(T, T_total, device):
        if T == 1:  # a single new token may look at all there is
            return torch.ones(T, T_total, dtype=torch.bool, device=device)
        return torch.ones(T, T_total, dtype=torch.bool, device=device).tril()

    yield from right_in_chunks(model, prompt, choose, steps, mask)


class TwiceCache(LayerCache):
    """A cache that takes what is new two times."""

    def append(self, k, v):
        super().append(k, v)
        return super().append(k, v)


def appended_twice(model, prompt, choose, steps):
    caches = [TwiceCache() for _ in model.blocks]
    new = prompt
    for index in range(steps):
        logits = model(new, caches)
        yield Turn(logits[:, -1], new, caches)
        new = choose(index, logits[:, -1])


def cache_made_anew(model, prompt, choose, steps):
    new = prompt
    for index in range(steps):
        caches = model.new_caches()
        logits = model(new, caches)
        yield Turn(logits[:, -1], new, caches)
        new = choose(index, logits[:, -1])


def cache_not_passed_on(model, prompt, choose, steps):
    ids = prompt
    for index in range(steps):
        caches = model.new_caches()
        logits = model(ids, caches)
        yield Turn(logits[:, -1], ids, caches)
        ids = torch.cat([ids, choose(index, logits[:, -1])], dim=1)


def stale_cache(model, prompt, choose, steps):
    caches = model.new_caches()
    model(prompt.flip(1)[:, :OLD_PROMPT], caches)  # an earlier prompt, another one
    new = prompt
    for index in range(steps):
        logits = model(new, caches)
        yield Turn(logits[:, -1], new, caches)
        new = choose(index, logits[:, -1])


def with_gradients(model, prompt, choose, steps):
    with torch.enable_grad():
        yield from right(model, prompt, choose, steps)


def one_token_for_the_prompt(model, prompt, choose, steps):
    caches = model.new_caches()
    new = prompt[:, -1:]
    for index in range(steps):
        logits = model(new, caches)
        yield Turn(logits[:, -1], new, caches)
        new = choose(index, logits[:, -1])


def prompt_fed_again(model, prompt, choose, steps):
    caches = model.new_caches()
    ids = prompt
    for index in range(steps):
        logits = model(ids, caches)
        yield Turn(logits[:, -1], ids, caches)
        ids = torch.cat([ids, choose(index, logits[:, -1])], dim=1)
