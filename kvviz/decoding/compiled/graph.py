"""A decode step as a CUDA graph: its operations are captured once and from then on launched all together.

The step is `reader.Reader`'s with sizes that never change: it reads every slot of the cache, and a mask says which are
filled; the position is a number on the device that the step itself raises. So a replay needs nothing from Python but
the new token's id.
"""

from collections.abc import Callable, Sequence

import torch

from kvviz.decoding.compiled.cache import SlotCache
from kvviz.decoding.compiled.reader import Reader

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


class FixedStep:
    """The step over static tensors: from `ids` (B, 1) and `at` (1,) to logits (B, vocabulary), `at` one further."""

    def __init__(self, reader: Reader, caches: Sequence[SlotCache], batch: int) -> None:
        device = caches[0].k.device
        self.ids = torch.zeros(batch, 1, dtype=torch.long, device=device)
        self.at = torch.zeros(1, dtype=torch.long, device=device)
        self._reader, self._slots = reader, [_Slot(cache, self.at) for cache in caches]
        self._constants = reader.constants()
        self._all = torch.arange(caches[0].max_cache_len, device=device)
        for cache in caches:  # an empty slot has weight 0, but 0 times a stray infinity would be no number
            cache.k[:, :, cache.seen :].zero_()
            cache.v[:, :, cache.seen :].zero_()

    def run(self) -> torch.Tensor:
        logits = self._reader.read(self.ids, self.at, self._slots, (self._all <= self.at)[None], self._constants)
        self.at.add_(1)
        return logits


class GraphStep:
    """`step(ids, caches)` like `native.NativeStep`, but replayed; it is captured anew when the buffers change.

    The graph reads and writes the very tensors of the caches, so it belongs to one run.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._prepared: tuple[FixedStep, Callable[[], torch.Tensor]] | None = None
        self._for: tuple[int, ...] = ()
        self._at = -1

    def prepare(self, caches: Sequence[SlotCache]) -> tuple[FixedStep, Callable[[], torch.Tensor]]:
        """Capture the step for these buffers. The prompt overwrites what its passes leave in slot 0."""
        fixed = FixedStep(self._reader, caches, caches[0].k.shape[0])
        self._prepared = fixed, captured(fixed) if replays(caches) else fixed.run
        self._for, self._at = _buffers(caches), -1
        return self._prepared

    def __call__(self, ids: torch.Tensor, caches: Sequence[SlotCache]) -> torch.Tensor:
        past = caches[0].seen
        if self._prepared is None or self._for != _buffers(caches):
            kept = [(cache.k[:, :, :1].clone(), cache.v[:, :, :1].clone()) for cache in caches]
            self._prepared = self.prepare(caches)
            for cache, (k, v) in zip(caches, kept, strict=True):
                cache.k[:, :, :1], cache.v[:, :, :1] = k, v
        fixed, replay = self._prepared
        if self._at != past:  # after the prompt; from then on the step counts itself
            fixed.at.fill_(past)
        fixed.ids.copy_(ids)
        logits = replay()
        self._at = past + 1
        for cache in caches:
            cache.seen = past + 1
        return logits.clone()  # the next replay writes over it


def replays(caches: Sequence[SlotCache]) -> bool:
    """Whether the device of a cache can capture operations and replay them."""
    return caches[0].k.is_cuda


def _buffers(caches: Sequence[SlotCache]) -> tuple[int, ...]:
    return tuple(tensor.data_ptr() for cache in caches for tensor in (cache.k, cache.v))


def captured(fixed: FixedStep) -> Callable[[], torch.Tensor]:
    """Capture a step as a CUDA graph and return its replay. Raises RuntimeError for an operation that can't be."""
    device = fixed.ids.device
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            fixed.at.zero_()
            fixed.run()
    torch.cuda.current_stream(device).wait_stream(side)
    fixed.at.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(device), torch.cuda.graph(graph):
        logits = fixed.run()

    def replay() -> torch.Tensor:
        graph.replay()
        return logits

    return replay
