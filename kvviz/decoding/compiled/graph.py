"""A decode step as a CUDA graph: its operations are captured once and from then on launched all together.

The step is `reader.Reader`'s with sizes that never change: it reads every slot of the cache, and a mask says which are
filled; the position is a number on the device that the step itself raises. So a replay needs nothing from Python but
the new token's id.
"""

import functools
from collections.abc import Callable, Sequence

import torch

from kvviz.decoding.compiled.reader import Reader
from kvviz.decoding.scratch.cache import SlotCache

WARM_UP = 3  # passes before the capture, in which libraries choose their kernels and allocate their memory


class _Slot:
    """One layer's cache in a step of fixed size: written at the position on the device, read in all its slots."""

    def __init__(self, cache: SlotCache, at: torch.Tensor) -> None:
        self._cache, self._at = cache, at

    @property
    def seen(self) -> int:
        return self._cache.seen

    def append(self, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self._cache.k.index_copy_(2, self._at, k)
        self._cache.v.index_copy_(2, self._at, v)
        return self._cache.k, self._cache.v


class GraphStep:
    """`step(ids, caches)` like `native.NativeStep`, but replayed where the device can do so.

    It is captured for the empty caches of one run, whose very tensors it reads and writes; the prompt overwrites what
    the capture leaves in slot 0. `ids` (B, 1) and `at` (1,) are the static tensors that a replay starts from.
    """

    def __init__(self, reader: Reader, caches: Sequence[SlotCache]) -> None:
        like = caches[0].k
        self.ids = torch.zeros(like.shape[0], 1, dtype=torch.long, device=like.device)
        self.at = torch.zeros(1, dtype=torch.long, device=like.device)
        self._reader, self._slots = reader, [_Slot(cache, self.at) for cache in caches]
        self._constants = reader.constants()
        self._all = torch.arange(caches[0].max_cache_len, device=like.device)
        for cache in caches:  # an empty slot has weight 0, but 0 times a stray infinity would be no number
            cache.k.zero_()
            cache.v.zero_()
        self._position = -1  # the value of `at`, as far as Python knows it
        self._replay = captured(self) if replays(caches) else self.run

    def run(self) -> torch.Tensor:
        """Do the step: from `ids` and `at` to logits (B, vocabulary), `at` one further."""
        logits = self._reader.read(self.ids, self.at, self._slots, (self._all <= self.at)[None], self._constants)
        self.at.add_(1)
        return logits

    def __call__(self, ids: torch.Tensor, caches: Sequence[SlotCache]) -> torch.Tensor:
        past = caches[0].seen
        if self._position != past:  # after the prompt; from then on the step counts itself
            self.at.fill_(past)
        self.ids.copy_(ids)
        logits = self._replay()
        self._position = past + 1
        for cache in caches:
            cache.seen = past + 1
        return logits.clone()  # the next replay writes over it


def replays(caches: Sequence[SlotCache]) -> bool:
    """Whether the device of a cache can capture operations and replay them."""
    return caches[0].k.is_cuda


@functools.cache
def capture_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the one stream of a device on which steps warm up and are captured.

    cuBLAS keeps a workspace for each stream (32 MiB on an H100), so a new stream for each capture would leak memory.
    """
    return torch.cuda.Stream(device)


def captured(step: GraphStep) -> Callable[[], torch.Tensor]:
    """Capture a step as a CUDA graph and return its replay. Raises RuntimeError for an operation that can't be."""
    device = step.ids.device
    side = capture_stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            step.at.zero_()
            step.run()
    torch.cuda.current_stream(device).wait_stream(side)
    step.at.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(device), torch.cuda.graph(graph, stream=side):
        logits = step.run()

    def replay() -> torch.Tensor:
        graph.replay()
        return logits

    return replay
