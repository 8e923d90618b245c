"""One buffer to the maximum: a new token goes into the next free slot, and nothing is ever moved.

The price is the tail: memory for the whole capacity from the first token on. If nobody knows the maximum, the buffer
doubles when it is full: then n tokens cost at most 2 n copies in all, and up to half of the buffer is empty.
"""

import torch

from kvviz.caches.base import InTensors, Pair, Picture, size


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
        self.keys[:, :, start:stop] = k  # into free slots: the old ones stay where they are
        self.values[:, :, start:stop] = v
        self.copied += size(k) + size(v)
        self.seen = self.held = stop
        return self.keys[:, :, :stop], self.values[:, :, :stop]  # (B, Hkv, T_all, D), views

    def _grow(self, k: torch.Tensor, v: torch.Tensor, needed: int) -> None:
        """Allocate a longer buffer and copy what is kept into it."""
        slots = self.slots_for(needed, self.slots)
        old = self.keys, self.values
        self.keys, self.values = (x.new_empty(*x.shape[:2], slots, x.shape[3]) for x in (k, v))
        if self.held:
            self.keys[:, :, : self.held] = old[0][:, :, : self.held]
            self.values[:, :, : self.held] = old[1][:, :, : self.held]
            self.copied += self.held * self.step_bytes

    def crop(self, tokens: int) -> None:
        self.check_crop(tokens)
        self.seen, self.held = self.seen - tokens, self.held - tokens  # the slots are free again, nothing moves

    def picture(self) -> Picture:
        """One buffer, its filled slots and its reserved tail; it `doubles` if no maximum is known."""
        return {
            "kind": "buffer",
            "slots": self.slots,
            "used": self.held,
            "first_position": 0,
            "copied_tokens": self.copied_tokens,
            "doubles": self.capacity is None,
        }
