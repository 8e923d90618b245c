"""One buffer to the maximum, on the device or in the host's memory: a new token goes into the next free slot.

The price is the tail: memory for the whole capacity from the first token on. If nobody knows the maximum, the buffer
doubles when it is full: then n tokens cost at most 2 n copies in all, and up to half of the buffer is empty.
"""

import torch

from kvviz.base.errors import KvvizError
from kvviz.caches.base import InTensors, KVCache, Pair, Picture


class Prealloc(InTensors):
    """`keys` and `values`, (B, Hkv, slots, D); slots 0 to held - 1 are filled and returned as a view.

    A layer with a window takes a `Ring` instead, whose slots are used again.
    """

    @property
    def slots(self) -> int:
        """Tokens of each sequence that the buffer has slots for."""
        return self.keys.shape[2]

    def _append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        start, stop = self.held, self.held + k.shape[2]
        if stop > self.slots:
            self._grow(k, v, stop)
        for buffer, new in ((self.keys, k), (self.values, v)):
            self._part(buffer, start, stop).copy_(new)  # into free slots: the old ones stay where they are
        self.copied += k.nbytes + v.nbytes
        self.seen = self.held = stop
        return self._part(self.keys, 0, stop), self._part(self.values, 0, stop)  # (B, Hkv, T_all, D), views

    def _part(self, buffer: torch.Tensor, start: int, stop: int) -> torch.Tensor:
        """Slots start to stop - 1 of a buffer, a view (B, Hkv, stop - start, D)."""
        return buffer[:, :, start:stop]

    def _buffer(self, x: torch.Tensor, slots: int) -> torch.Tensor:
        """An empty buffer for tokens such as x (B, Hkv, T, D)."""
        return x.new_empty(*x.shape[:2], slots, x.shape[3])

    def _grow(self, k: torch.Tensor, v: torch.Tensor, needed: int) -> None:
        """Allocate a longer buffer, of the whole capacity or twice as long, and copy what is kept into it."""
        if self.capacity is not None and needed > self.capacity:
            raise KvvizError(
                f"this cache has room for {self.capacity:,} tokens of each sequence; {needed:,} do not fit"
            )
        slots, old = self.capacity or max(16, 2 * self.slots, needed), (self.keys, self.values)
        self.keys, self.values = self._buffer(k, slots), self._buffer(v, slots)
        if self.held:
            for before, buffer in zip(old, (self.keys, self.values), strict=True):
                self._part(buffer, 0, self.held).copy_(self._part(before, 0, self.held))
            self.copied += self.held * self.step_bytes

    def _crop(self, tokens: int) -> None:
        """Do nothing: the newest slots are free again."""

    def picture(self) -> Picture:
        """One buffer, its filled slots and its reserved tail; it `doubles` if no maximum is known."""
        return {**super().picture(), "doubles": self.capacity is None}


class Offloaded(Prealloc):
    """Keys and values in the host's memory, which is larger than a device's: fetched at each step, layer by layer.

    `keys` and `values`, (slots, B, Hkv, D), are time first, so that what is filled is one piece. The device holds one
    layer's at a time. A step reads the whole cache over the bus between the two, some twenty times slower than the
    device's own memory. Ours waits for each layer; prefetching the next one meanwhile, as transformers can, hides part
    of it:
    https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/cache_utils.py
    """

    @property
    def slots(self) -> int:
        return self.keys.shape[0]

    def _append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        first = not self.held
        keys, values = super()._append(k, v)  # from the device to the host
        if first:
            return k, v  # the device still has them
        self.gathered = self.held * self.step_bytes
        return keys.to(self.device), values.to(self.device)  # and all of it back

    def _part(self, buffer: torch.Tensor, start: int, stop: int) -> torch.Tensor:
        return buffer[start:stop].permute(1, 2, 0, 3)

    def _buffer(self, x: torch.Tensor, slots: int) -> torch.Tensor:
        pinned = x.device.type == "cuda"  # the device reads such pages by itself
        return torch.empty(slots, *x.shape[:2], x.shape[3], dtype=x.dtype, pin_memory=pinned)

    def filled(self) -> dict[str, torch.Tensor]:
        return {"keys": self.keys[: self.held], "values": self.values[: self.held]}

    reorder = KVCache.reorder  # which refuses: the sequences are not the first dimension here

    def picture(self) -> Picture:
        """A buffer in the host's memory; `fetched_bytes` came over the bus at the last append."""
        return {**super().picture(), "host": True, "fetched_bytes": self.gathered}
