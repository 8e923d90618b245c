"""A window as a ring, with attention sinks before it: the newest token takes the slot of the oldest.

Sinks: the first few tokens are never dropped, since attention puts weight on them whatever they say; without them a
text falls apart as soon as the window has moved past its start. StreamingLLM, https://arxiv.org/abs/2309.17453

Positions: keys are kept as the model rotated them, at their tokens' true positions, so the output is exactly what the
model computes with a mask over the tokens between sinks and window (a test checks it). The paper counts positions
inside the cache instead and rotates keys anew at each step. A cache below a transformers model can't do that, since its
keys arrive rotated; it matters beyond the context that a model was trained on.
"""

import torch

from kvviz.base.errors import KvvizError
from kvviz.caches.base import InTensors, Pair, Picture
from kvviz.caches.designs import BUDGET, SINKS


class Ring(InTensors):
    """`keys` and `values`, (B, Hkv, sinks + window, D): `sinks` slots for the first tokens, then a ring.

    The token at position p >= sinks lies in slot sinks + (p - sinks) mod window. With 2 sinks and a window of 3, after
    positions 0 to 6:

        slot      0  1 | 2  3  4
        position  0  1 | 5  6  4        position 7 comes next and replaces 4

    A single new token sees the sinks and the newest `window` tokens, itself included. Several at once (a prefill) see
    all that is held and one another, and only then are the oldest dropped. Without sinks, a layer with this window of
    its own loses nothing.
    """

    crops = False

    def __init__(self, *, sinks: int = 0, window: int, capacity: int | None = None) -> None:
        super().__init__(window=window, capacity=capacity)
        if window < 1 or sinks < 0:
            raise KvvizError(
                f"a ring needs a window of at least 1 token and no fewer than 0 sinks, not {window, sinks}"
            )
        self.sinks, self.ring, self.slots = sinks, window, sinks + window

    def slot_of(self, position: int) -> int:
        """The slot of the token at a position."""
        return position if position < self.slots else self.sinks + (position - self.sinks) % self.ring

    def positions(self) -> list[int]:
        """The positions of the tokens held, in order: the sinks, then the newest."""
        newest = range(max(self.sinks, self.seen - self.ring), self.seen)
        return [*range(min(self.sinks, self.seen)), *newest]

    def span(self, new: int) -> tuple[int, int]:
        length = min(self.held + 1, self.slots) if new == 1 else self.held + new
        return length, self.seen + new - length

    def _append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        if not self.keys.numel():
            self.keys, self.values = (x.new_empty(*x.shape[:2], self.slots, x.shape[3]) for x in (k, v))
        return self._append_one(k, v) if k.shape[2] == 1 else self._append_many(k, v)

    def _append_one(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        """Write one slot, as at each decode step. The order of slots does not matter to a query that sees them all."""
        slot = self.slot_of(self.seen)
        self.keys[:, :, slot : slot + 1] = k
        self.values[:, :, slot : slot + 1] = v
        self.copied = k.nbytes + v.nbytes
        self.seen += 1
        self.held = min(self.held + 1, self.slots)
        return self.keys[:, :, : self.held], self.values[:, :, : self.held]

    def _append_many(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        """Return what is held and the new tokens, by position; then write those of the new ones that are kept."""
        first, held = self.seen, self.positions()
        keys, values = self._joined(k, v, held)  # (B, Hkv, held + T, D)
        self.seen += k.shape[2]
        kept = self.positions()
        new = [position for position in kept if position >= first]
        slots = torch.tensor([self.slot_of(position) for position in new], device=k.device)
        places = torch.tensor([position - first for position in new], device=k.device)
        self.keys.index_copy_(2, slots, k.index_select(2, places))
        self.values.index_copy_(2, slots, v.index_select(2, places))
        self.copied = len(new) * self.step_bytes
        self.held = len(kept)
        return keys, values

    def _joined(self, k: torch.Tensor, v: torch.Tensor, held: list[int]) -> Pair:
        """What is held, in order of position, and the new tokens after it."""
        if not held:
            return k, v
        slots = torch.tensor([self.slot_of(position) for position in held], device=k.device)
        pairs = ((self.keys, k), (self.values, v))
        keys, values = (torch.cat([old.index_select(2, slots), new], dim=2) for old, new in pairs)
        self.gathered = keys.nbytes + values.nbytes
        return keys, values

    def picture(self) -> Picture:
        """The position of the token in each slot (None: empty), and the slot that the next token takes."""
        positions: list[int | None] = [None] * self.keys.shape[2]
        for position in self.positions():
            positions[self.slot_of(position)] = position
        return {"kind": "ring", "sinks": self.sinks, "positions": positions, "next_slot": self.slot_of(self.seen)}


class Sinks(Ring):
    """The ring with sinks, for layers that attend to everything: the tokens between sinks and window are lost."""

    exact = False

    def __init__(
        self,
        *,
        sinks: int = SINKS,
        window: int | None = None,
        capacity: int | None = None,
        budget: int = BUDGET,
    ) -> None:
        super().__init__(sinks=sinks, window=budget - sinks if window is None else window, capacity=capacity)
