"""A decode under a stopwatch, right and wrong: each loop yields the seconds that it attributes to every forward.

The prefill's come first.
"""

import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from kvviz.decoding.scratch.generate import chosen
from kvviz.decoding.scratch.model import Transformer

Sync = Callable[[], None]


@torch.no_grad()
def synchronised(model: Transformer, prompt: Tensor, steps: int, sync: Sync) -> Iterator[float]:
    caches, new = model.new_caches(), prompt
    for _ in range(steps):
        sync()
        start = time.perf_counter()
        logits = model(new, caches)
        sync()
        yield time.perf_counter() - start
        new = chosen(logits)


@torch.no_grad()
def not_synchronised(model: Transformer, prompt: Tensor, steps: int, sync: Sync) -> Iterator[float]:
    caches, new = model.new_caches(), prompt
    for _ in range(steps):
        start = time.perf_counter()
        logits = model(new, caches)
        yield time.perf_counter() - start
        new = chosen(logits)


def with_warm_up(model: Transformer, prompt: Tensor, steps: int, sync: Sync) -> Iterator[float]:
    list(synchronised(model, prompt, steps, sync))  # the first pass is thrown away
    yield from synchronised(model, prompt, steps, sync)


def without_warm_up(model: Transformer, prompt: Tensor, steps: int, sync: Sync) -> Iterator[float]:
    yield from synchronised(model, prompt, steps, sync)
