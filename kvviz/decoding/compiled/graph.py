"""A decode step that a GPU replays: its operations are taken down once and started all together ever after.

The step is `reader.Reader`'s with sizes that never change: it looks at every slot of the cache and is told by a mask
which are filled; the position is a number on the device that the step itself raises. So a replay needs nothing from
Python but the new token's id.
"""

from collections.abc import Sequence

import torch

from kvviz.decoding.compiled.cache import SlotCache
from kvviz.decoding.compiled.reader import Reader

WARM_UP = 3  # passes before anything is taken down: libraries choose their kernels and ask for their memory


class _Slot:
    """One layer's cache as a step of fixed size meets it: written at the position on the device, read in whole."""

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
    """The step over static tensors: `ids` (B, 1) and `at` (1,) in, `logits` (B, vocabulary) out, `at` one further."""

    def __init__(self, reader: Reader, caches: Sequence[SlotCache], batch: int) -> None:
        device = caches[0].k.device
        self.ids = torch.zeros(batch, 1, dtype=torch.long, device=device)
        self.at = torch.zeros(1, dtype=torch.long, device=device)
        self.logits: torch.Tensor | None = None
        self._reader, self._slots = reader, [_Slot(cache, self.at) for cache in caches]
        self._constants = reader.constants()
        self._all = torch.arange(caches[0].max_cache_len, device=device)
        for cache in caches:  # an empty slot counts nothing times what stands in it, which has to be a number
            cache.k[:, :, cache.seen :].zero_()
            cache.v[:, :, cache.seen :].zero_()

    def run(self) -> None:
        self.logits = self._reader.read(self.ids, self.at, self._slots, (self._all <= self.at)[None], self._constants)
        self.at.add_(1)


class GraphStep:
    """`step(ids, caches)` as `native.NativeStep` has it, replayed. It is taken down anew when the buffers change.

    The graph reads and writes the very tensors of the caches, so it belongs to one run.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._fixed: FixedStep | None = None
        self._replay = lambda: None
        self._for: tuple[int, ...] = ()
        self._at = -1

    def prepare(self, caches: Sequence[SlotCache]) -> None:
        """Take the step down for these buffers. What its passes write into slot 0 is written over by the prompt."""
        self._fixed = FixedStep(self._reader, caches, caches[0].k.shape[0])
        self._replay = captured(self._fixed) if replays(caches) else self._fixed.run
        self._for, self._at = _buffers(caches), -1

    def __call__(self, ids: torch.Tensor, caches: Sequence[SlotCache]) -> torch.Tensor:
        past = caches[0].seen
        if self._for != _buffers(caches):
            kept = [(cache.k[:, :, :1].clone(), cache.v[:, :, :1].clone()) for cache in caches]
            self.prepare(caches)
            for cache, (k, v) in zip(caches, kept, strict=True):
                cache.k[:, :, :1], cache.v[:, :, :1] = k, v
        fixed = self._fixed
        if self._at != past:  # after the prompt; from then on the step counts itself
            fixed.at.fill_(past)
        fixed.ids.copy_(ids)
        self._replay()
        self._at = past + 1
        for cache in caches:
            cache.seen = past + 1
        return fixed.logits.clone()  # the next replay writes over it


def replays(caches: Sequence[SlotCache]) -> bool:
    """Whether the device of a cache can take operations down and replay them."""
    return caches[0].k.is_cuda


def _buffers(caches: Sequence[SlotCache]) -> tuple[int, ...]:
    return tuple(tensor.data_ptr() for cache in caches for tensor in (cache.k, cache.v))


def captured(fixed: FixedStep):
    """The replay of a step's CUDA graph. Raises RuntimeError where an operation of it can't be taken down."""
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
        fixed.run()
    return graph.replay
