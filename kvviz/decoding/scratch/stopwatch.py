"""A decode under a stopwatch, right and wrong. Each yields the seconds that it takes every forward

to have needed, the prefill's first."""

import time

import torch

from kvviz.decoding.scratch.generate import chosen


@torch.no_grad()
def synchronised(model, prompt, steps, sync):
    caches, new = model.new_caches(), prompt
    for _ in range(steps):
        sync()
        start = time.perf_counter()
        logits = model(new, caches)
        sync()
        yield time.perf_counter() - start
        new = chosen(logits)


@torch.no_grad()
def not_synchronised(model, prompt, steps, sync):
    caches, new = model.new_caches(), prompt
    for _ in range(steps):
        start = time.perf_counter()
        logits = model(new, caches)
        yield time.perf_counter() - start
        new = chosen(logits)


def with_warm_up(model, prompt, steps, sync):
    list(synchronised(model, prompt, steps, sync))  # the first pass is thrown away
    yield from synchronised(model, prompt, steps, sync)


def without_warm_up(model, prompt, steps, sync):
    yield from synchronised(model, prompt, steps, sync)
