"""Keys and values in the host's memory, which is larger than a device's: fetched at each step, layer by layer.

The device holds one layer's keys and values at a time. A step reads the whole cache over the bus between the two, some
twenty times slower than the device's own memory. Ours waits for each layer; prefetching the next layer meanwhile, as
transformers can, hides part of it:
https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/cache_utils.py
"""

import torch

from kvviz.caches.base import KVCache, Pair, Picture, size
from kvviz.caches.prealloc import Prealloc


class Offloaded(Prealloc):
    """`keys` and `values`, (slots, B, Hkv, D), lie in the host's memory, time first: what is filled is one piece."""

    @property
    def slots(self) -> int:
        return self.keys.shape[0]

    def _append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        start, stop = self.held, self.held + k.shape[2]
        if stop > self.slots:
            self._grow(k, v, stop)
        self.keys[start:stop] = k.permute(2, 0, 1, 3)  # from the device to the host
        self.values[start:stop] = v.permute(2, 0, 1, 3)
        self.copied += size(k) + size(v)
        self.seen = self.held = stop
        if not start:
            return k, v  # the device still has them
        self.gathered = self.held * self.step_bytes
        keys, values = (x[:stop].to(self.device) for x in (self.keys, self.values))  # and all of it back
        return keys.permute(1, 2, 0, 3), values.permute(1, 2, 0, 3)  # (B, Hkv, T_all, D)

    def _grow(self, k: torch.Tensor, v: torch.Tensor, needed: int) -> None:
        slots = self.slots_for(needed, self.slots)
        old = self.keys, self.values
        pinned = k.device.type == "cuda"  # the device reads such pages by itself
        self.keys, self.values = (
            torch.empty(slots, *x.shape[:2], x.shape[3], dtype=x.dtype, pin_memory=pinned) for x in (k, v)
        )
        if self.held:
            self.keys[: self.held], self.values[: self.held] = old[0][: self.held], old[1][: self.held]
            self.copied += self.held * self.step_bytes

    def filled(self) -> dict[str, torch.Tensor]:
        return {"keys": self.keys[: self.held], "values": self.values[: self.held]}

    reorder = KVCache.reorder  # which refuses: the sequences are not the first dimension here

    def picture(self) -> Picture:
        """A buffer in the host's memory; `fetched_bytes` came over the bus at the last append."""
        return {**super().picture(), "host": True, "fetched_bytes": self.gathered}
