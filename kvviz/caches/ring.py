"""A window as a ring, with attention sinks before it: the newest token takes the slot of the oldest.

Sinks: the first few tokens are never let go, since attention leans on them whatever they say; without them a text falls
apart as soon as the window has left its start. StreamingLLM, https://arxiv.org/abs/2309.17453

Positions: keys are kept as the model turned them, at the positions where their tokens really stood, so what comes out
is exactly what the model would say with a mask over the tokens between sinks and window (a test holds it to that). The
paper counts positions inside the cache instead and turns keys anew at each step, which no cache below a transformers
model can do, as the keys arrive turned already; it matters beyond the context that a model was trained on.
"""

from typing import Any

import torch

from kvviz.base.errors import KvvizError
from kvviz.caches.base import InTensors, Pair, size

SINKS, WINDOW = 4, 60  # small enough for a short run to show it; the paper takes 4 and 1,020


class Ring(InTensors):
    """`keys` and `values`, (B, Hkv, sinks + window, D): `sinks` slots for the first tokens, then a ring.

    The token at position p >= sinks lies in slot sinks + (p - sinks) mod window. A single new token sees the sinks and
    the newest `window` tokens, itself among them. Several at once (a prefill) see all that is held and one another, and
    only then the oldest go. Of a layer with a window of its own, and without sinks, nothing is lost.
    """

    def __init__(self, *, sinks: int = 0, window: int, room: int | None = None) -> None:
        super().__init__(window=window, room=room)
        if window < 1 or sinks < 0:
            raise KvvizError(
                f"a ring needs a window of at least 1 token and no fewer than 0 sinks, not {window, sinks}"
            )
        self.sinks, self.slots = sinks, sinks + window

    def slot_of(self, position: int) -> int:
        """The slot of the token at a position."""
        return position if position < self.slots else self.sinks + (position - self.sinks) % self.window

    def positions(self) -> list[int]:
        """The positions of the tokens held, in order: the sinks, then the newest."""
        newest = range(max(self.sinks, self.seen - self.window), self.seen)
        return [*range(min(self.sinks, self.seen)), *newest]

    def span(self, new: int) -> tuple[int, int]:
        length = min(self.held + 1, self.slots) if new == 1 else self.held + new
        return length, self.seen + new - length

    def _append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        if self.keys is None:
            self.keys, self.values = (x.new_empty(*x.shape[:2], self.slots, x.shape[3]) for x in (k, v))
        if k.shape[2] == 1:
            return self._one(k, v)
        kept = self.positions()
        keys, values = self._with_new(k, v, kept)  # (B, Hkv, held + T, D), in order of positions
        new = range(self.seen, self.seen + k.shape[2])
        self.seen += k.shape[2]
        staying = set(self.positions())
        self._write(
            [(place, p) for place, p in enumerate([*kept, *new]) if p in staying and p >= new.start], keys, values
        )
        self.held = len(staying)
        return keys, values

    def _one(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        """The usual step: one slot is written. Their order does not matter to a query that may look at them all."""
        slot = self.slot_of(self.seen)
        self.keys[:, :, slot : slot + 1] = k
        self.values[:, :, slot : slot + 1] = v
        self.copied = size(k) + size(v)
        self.seen += 1
        self.held = min(self.held + 1, self.slots)
        return self.keys[:, :, : self.held], self.values[:, :, : self.held]

    def _with_new(self, k: torch.Tensor, v: torch.Tensor, kept: list[int]) -> Pair:
        """What is held, in order, and the new tokens after it."""
        if not kept:
            return k, v
        slots = torch.tensor([self.slot_of(p) for p in kept], device=k.device)
        pairs = ((self.keys, k), (self.values, v))
        keys, values = (torch.cat([held.index_select(2, slots), new], dim=2) for held, new in pairs)
        self.gathered = size(keys) + size(values)
        return keys, values

    def _write(self, staying: list[tuple[int, int]], keys: torch.Tensor, values: torch.Tensor) -> None:
        """Put the new tokens that stay into their slots: (place among `keys`, position) of each."""
        places = torch.tensor([place for place, _ in staying], device=keys.device)
        slots = torch.tensor([self.slot_of(p) for _, p in staying], device=keys.device)
        self.keys.index_copy_(2, slots, keys.index_select(2, places))
        self.values.index_copy_(2, slots, values.index_select(2, places))
        self.copied = len(staying) * self.step_bytes

    def picture(self) -> dict[str, Any]:
        """The slots with the positions of the tokens in them (None: empty), and where the next one goes."""
        positions: list[int | None] = [None] * (self.slots if self.keys is not None else 0)
        for p in self.positions() if self.keys is not None else ():
            positions[self.slot_of(p)] = p
        return {"kind": "ring", "sinks": self.sinks, "positions": positions, "next_slot": self.slot_of(self.seen)}


class Sinks(Ring):
    """The ring with sinks for a layer that would look at everything: what lies between is lost."""

    exact = False

    def __init__(self, *, sinks: int = SINKS, window: int = WINDOW, room: int | None = None) -> None:
        super().__init__(sinks=sinks, window=window, room=room)
