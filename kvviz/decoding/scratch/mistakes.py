"""The decode loop, right and wrong: every mistake of a first KV cache, really made.

Each is a generator that yields after every forward, on the same weights as the right loop. `pitfalls` says for each
what to look at, which line is at fault and how it is mended.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from kvviz.decoding.scratch.attention import Mask, causal
from kvviz.decoding.scratch.cache import LayerCache
from kvviz.decoding.scratch.model import Transformer
from kvviz.device.clock import Sync

CHUNK = 4  # tokens of the prompt that a chunked prefill reads at a time
OLD_PROMPT = 6  # tokens of another prompt, left in a cache that is used again

Choose = Callable[[int, Tensor], Tensor]


@dataclass(frozen=True)
class ForwardPass:
    """What is known after a forward: the `logits` (B, vocabulary) of the last position, None before the prompt's end.

    `read` are the ids (B, T) that it read; `caches` are those that the loop holds now.
    """

    logits: Tensor | None
    read: Tensor
    caches: list[LayerCache]


Passes = Iterator[ForwardPass]
Loop = Callable[[Transformer, Tensor, Choose, int], Passes]


# --- right -----------------------------------------------------------------------------------------------------


def right(model: Transformer, prompt: Tensor, choose: Choose, steps: int) -> Passes:
    """Prefill once, then one token a step."""
    caches = model.new_caches()
    new = prompt
    for index in range(steps):
        logits = model.last_logits(new, caches)
        yield ForwardPass(logits, new, caches)
        new = choose(index, logits)


def right_in_chunks(model: Transformer, prompt: Tensor, choose: Choose, steps: int, mask: Mask = causal) -> Passes:
    """Read the prompt a few tokens at a time, then one token a step."""
    caches = model.new_caches()
    pieces = prompt.split(CHUNK, dim=1)
    for piece in pieces[:-1]:
        model.read(piece, caches, mask=mask)
        yield ForwardPass(None, piece, caches)
    new = pieces[-1]
    for index in range(steps):
        logits = model.last_logits(new, caches, mask=mask)
        yield ForwardPass(logits, new, caches)
        new = choose(index, logits)


def right_without_cache(model: Transformer, prompt: Tensor, choose: Choose, steps: int) -> Passes:
    """Read the whole sequence again at every step."""
    ids = prompt
    for index in range(steps):
        logits = model.last_logits(ids)
        yield ForwardPass(logits, ids, [])
        ids = torch.cat([ids, choose(index, logits)], dim=1)


# --- wrong -----------------------------------------------------------------------------------------------------


def positions_stand_still(model: Transformer, prompt: Tensor, choose: Choose, steps: int) -> Passes:
    caches = model.new_caches()
    new = prompt
    for index in range(steps):
        at = torch.arange(new.shape[1], device=new.device)
        logits = model.last_logits(new, caches, at=at)
        yield ForwardPass(logits, new, caches)
        new = choose(index, logits)


def square_mask(model: Transformer, prompt: Tensor, choose: Choose, steps: int) -> Passes:
    def mask(T: int, T_total: int, device: torch.device) -> Tensor:
        return torch.ones(T, T, dtype=torch.bool, device=device).tril()

    yield from right_in_chunks(model, prompt, choose, steps, mask)


def mask_without_offset(model: Transformer, prompt: Tensor, choose: Choose, steps: int) -> Passes:
    def mask(T: int, T_total: int, device: torch.device) -> Tensor:
        if T == 1:  # a single new token may attend to all tokens
            return torch.ones(T, T_total, dtype=torch.bool, device=device)
        return torch.ones(T, T_total, dtype=torch.bool, device=device).tril()

    yield from right_in_chunks(model, prompt, choose, steps, mask)


class TwiceCache(LayerCache):
    """A cache that appends new keys and values twice."""

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        super().append(k, v)
        return super().append(k, v)


def appended_twice(model: Transformer, prompt: Tensor, choose: Choose, steps: int) -> Passes:
    caches: list[LayerCache] = [TwiceCache() for _ in model.blocks]
    new = prompt
    for index in range(steps):
        logits = model.last_logits(new, caches)
        yield ForwardPass(logits, new, caches)
        new = choose(index, logits)


def cache_made_anew(model: Transformer, prompt: Tensor, choose: Choose, steps: int) -> Passes:
    new = prompt
    for index in range(steps):
        caches = model.new_caches()
        logits = model.last_logits(new, caches)
        yield ForwardPass(logits, new, caches)
        new = choose(index, logits)


def cache_not_passed_on(model: Transformer, prompt: Tensor, choose: Choose, steps: int) -> Passes:
    ids = prompt
    for index in range(steps):
        caches = model.new_caches()
        logits = model.last_logits(ids, caches)
        yield ForwardPass(logits, ids, caches)
        ids = torch.cat([ids, choose(index, logits)], dim=1)


def stale_cache(model: Transformer, prompt: Tensor, choose: Choose, steps: int) -> Passes:
    caches = model.new_caches()
    model.read(prompt.flip(1)[:, :OLD_PROMPT], caches)  # an earlier prompt, another one
    new = prompt
    for index in range(steps):
        logits = model.last_logits(new, caches)
        yield ForwardPass(logits, new, caches)
        new = choose(index, logits)


def with_gradients(model: Transformer, prompt: Tensor, choose: Choose, steps: int) -> Passes:
    with torch.enable_grad():
        yield from right(model, prompt, choose, steps)


def one_token_for_the_prompt(model: Transformer, prompt: Tensor, choose: Choose, steps: int) -> Passes:
    caches = model.new_caches()
    new = prompt[:, -1:]
    for index in range(steps):
        logits = model.last_logits(new, caches)
        yield ForwardPass(logits, new, caches)
        new = choose(index, logits)


def prompt_fed_again(model: Transformer, prompt: Tensor, choose: Choose, steps: int) -> Passes:
    caches = model.new_caches()
    ids = prompt
    for index in range(steps):
        logits = model.last_logits(ids, caches)
        yield ForwardPass(logits, ids, caches)
        ids = torch.cat([ids, choose(index, logits)], dim=1)


# --- under a stopwatch: each yields the seconds that it attributes to every forward, the prefill's first -----------


def chosen(logits: Tensor) -> Tensor:
    """Choose the likeliest next token: (B, vocabulary) -> (B, 1)."""
    return logits.argmax(dim=-1, keepdim=True)


@torch.no_grad()
def synchronised(model: Transformer, prompt: Tensor, steps: int, sync: Sync) -> Iterator[float]:
    caches, new = model.new_caches(), prompt
    for _ in range(steps):
        sync()
        start = time.perf_counter()
        logits = model.last_logits(new, caches)
        sync()
        yield time.perf_counter() - start
        new = chosen(logits)


@torch.no_grad()
def not_synchronised(model: Transformer, prompt: Tensor, steps: int, sync: Sync) -> Iterator[float]:
    caches, new = model.new_caches(), prompt
    for _ in range(steps):
        start = time.perf_counter()
        logits = model.last_logits(new, caches)
        yield time.perf_counter() - start
        new = chosen(logits)


def with_warm_up(model: Transformer, prompt: Tensor, steps: int, sync: Sync) -> Iterator[float]:
    list(synchronised(model, prompt, steps, sync))  # the first pass is thrown away
    yield from synchronised(model, prompt, steps, sync)


def without_warm_up(model: Transformer, prompt: Tensor, steps: int, sync: Sync) -> Iterator[float]:
    yield from synchronised(model, prompt, steps, sync)
