"""What every design that evicts tokens has in common: a budget, a score for each token, and room for the tokens kept.

A design says in `observe` how the weights of attention make scores, or gives scores without them. Each KV head keeps
tokens of its own choice. Keys stay as the model rotated them, at their tokens' true positions.
"""

from collections.abc import Callable, Sequence

import torch

from kvviz.base.errors import KvvizError
from kvviz.caches.base import InTensors, Pair, Picture
from kvviz.caches.designs import BUDGET, held_within

# Rotates rows (B, H, T, D) as the model rotates those at positions (T,); if `mean`, each by the mean of all positions.
Rotate = Callable[[torch.Tensor, torch.Tensor, bool], torch.Tensor]
PARTS = ("keys", "values", "positions", "scores")  # what is kept of a token


class Evicting(InTensors):
    """Keeps at most `budget` tokens of each sequence and KV head: those with the highest `scores`, and the newest.

    `positions` (int32) and `scores` (float32) are (B, Hkv, slots) and tell of the token in each slot. A decode step
    attends to at most `budget` tokens: once there are as many, the new one takes the slot of that with the lowest score
    (`at_once` 1), or the lowest `at_once` make room together. A prefill attends to everything, and evicts afterwards.
    """

    exact = False
    crops = False
    positions: torch.Tensor
    scores: torch.Tensor
    queries: int | None = None  # of how many of a forward's newest queries the weights are asked for; None: of all
    meets = False  # it wants to `meet` the queries themselves
    first = 0  # how many of a text's first tokens are never evicted

    def __init__(
        self, *, budget: int = BUDGET, at_once: int = 1, window: int | None = None, capacity: int | None = None
    ) -> None:
        super().__init__(window=window, capacity=capacity)
        self.budget, self.at_once = budget, at_once
        self.slots = budget if capacity is None else min(budget, capacity)
        self._empty()

    # --- what a design says ---

    @property
    def recent(self) -> int:
        """How many of the newest tokens are never evicted."""
        return 0

    def first_scores(self, positions: torch.Tensor) -> torch.Tensor:
        """Return the scores with which tokens arrive, (B, Hkv, T)."""
        return torch.zeros(positions.shape, device=positions.device)

    def observe(self, weights: torch.Tensor, *, after: int) -> None:
        """Take the weights (B, H, T, S) of T queries' attention to the first S tokens held into account.

        `after` queries of the same forward come after these.
        """

    def meet(self, queries: torch.Tensor, rotate: Rotate, scaling: float) -> None:
        """Take the queries (B, H, T, D) of a forward into account; their products with keys are scaled by `scaling`."""

    def ranking(self) -> torch.Tensor:
        """Return what decides who stays, (B, Hkv, held): higher stays."""
        return self.scores[:, :, : self.held]

    # --- what they have in common ---

    def by_head(self, weights: torch.Tensor) -> torch.Tensor:
        """Return the mean over the query heads that share a KV head: (B, H, ...) -> (B, Hkv, ...)."""
        heads = self.positions.shape[1]
        return weights if weights.shape[1] == heads else weights.unflatten(1, (heads, -1)).mean(2)

    def settle(self) -> None:
        """Evict what a prefill brought beyond the budget, once its attention has been computed."""
        self._unseen = False
        if self.held > self.budget:
            self._keep(held_within(self.budget, self.at_once, self.seen))
            self.copied = self.held * self.step_bytes

    def span(self, new: int) -> tuple[int, int]:
        length = held_within(self.budget, self.at_once, self.seen + 1) if new == 1 else self.held + new
        return length, self.seen + new - length

    def filled(self) -> dict[str, torch.Tensor]:
        return {name: stored[:, :, : self.held] for name, stored in zip(PARTS, self._stored, strict=True)}

    @property
    def beside_bytes(self) -> int:
        return sum(stored[:, :, : self.held].nbytes for stored in (self.positions, self.scores))

    def reorder(self, rows: torch.Tensor) -> None:
        super().reorder(rows)
        if self.shape is not None:
            self.positions, self.scores = (x.index_select(0, rows) for x in (self.positions, self.scores))

    def free(self) -> None:
        super().free()
        self._empty()

    def picture(self) -> Picture:
        """The positions of the tokens that the first KV head of the first sequence keeps, in order.

        `copied_tokens` is how many the last append wrote: the new ones, and those that moved to make room for them.
        """
        kept = sorted(self.positions[0, 0, : self.held].tolist()) if self.shape else []
        written = self.copied // self.step_bytes if self.held else 0
        return {"kind": "evicting", "positions": kept, "seen": self.seen, "copied_tokens": written}

    def _empty(self) -> None:
        self.positions, self.scores = torch.empty(0, 0, 0, dtype=torch.int32), torch.empty(0, 0, 0)
        self._unseen = False  # the weights of the newest tokens' attention are still to come

    @property
    def watched(self) -> bool:
        """Whether it has to be shown what attention computes."""
        return self.queries != 0 or self.meets

    @property
    def _stored(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.keys, self.values, self.positions, self.scores

    def _append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        if self._unseen and self.held + k.shape[2] > self.budget:
            raise KvvizError(
                f"{type(self).__name__} was not shown the weights of attention; not every model lets them be seen: "
                "take sinks or random"
            )
        new = k.shape[2]
        positions = torch.arange(self.seen, self.seen + new, dtype=torch.int32, device=k.device).expand(
            *k.shape[:2], -1
        )
        arrived = (k, v, positions, self.first_scores(positions))
        full, self.copied, self._unseen = self.held >= self.budget, self.step_bytes * new, self.watched
        if new == 1 and full and self.at_once > 1:
            self._make_room()
            self.copied += self.at_once * self.step_bytes
        self.seen += new
        if new == 1 and full and self.at_once == 1:
            self._replace(arrived)
            return self.keys, self.values
        self._add(arrived)
        pair = self.keys[:, :, : self.held], self.values[:, :, : self.held]
        if not self.watched:
            self.settle()
        return pair

    def _add(self, arrived: tuple[torch.Tensor, ...]) -> None:
        """Write new tokens into the next free slots; a prefill too long for them is joined to what is there."""
        before, self.held = self.held, self.held + arrived[0].shape[2]
        if self.held <= self.slots:
            stored = self._stored if before else self._allocated(arrived)
            for slots, new in zip(stored, arrived, strict=True):
                slots[:, :, before : self.held] = new
            self.keys, self.values, self.positions, self.scores = stored
            return
        pairs = zip(self._stored, arrived, strict=True)
        joined = [torch.cat([x[:, :, :before], new], dim=2) if before else new for x, new in pairs]
        self.keys, self.values, self.positions, self.scores = joined

    def _allocated(self, like: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return tuple(x.new_empty(*x.shape[:2], self.slots, *x.shape[3:]) for x in like)

    def _replace(self, arrived: Sequence[torch.Tensor]) -> None:
        """Write a new token over the one with the lowest score, in each KV head."""
        self._write(arrived, self._spared().argmin(-1, keepdim=True))

    def _make_room(self) -> None:
        """Evict the `at_once` tokens of the lowest rank from a full cache; the last ones move into their slots.

        So only as many rows move as leave, whatever the budget, and the slots in use stay together at the front.
        """
        count = self.budget - self.at_once
        slots, stays = self._leaving(count)
        last = [stored[:, :, count : self.held] for stored in self._stored]
        # scatter_ refuses a source that shares memory with where it writes
        self._write([x.clone() if stays is None else _rows(x, stays) for x in last], slots)
        self.held = count

    def _leaving(self, count: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the slots of the tokens that leave (B, Hkv, at_once), in ascending order.

        Return as well the order in which the tokens behind the first `count` slots move into them, tokens that stay
        first; it is None if all of those tokens stay.
        """
        ranks = self._spared()
        slots = ranks.topk(self.at_once, largest=False).indices.sort().values
        return slots, ranks[:, :, count:].argsort(descending=True)

    def _write(self, rows: Sequence[torch.Tensor], slots: torch.Tensor) -> None:
        """Write what is kept of some tokens into slots (B, Hkv, tokens)."""
        for stored, new in zip(self._stored, rows, strict=True):
            stored.scatter_(2, slots if new.dim() == 3 else slots[..., None].expand_as(new), new)

    def _keep(self, count: int) -> None:
        """Evict all but the `count` tokens of the highest rank, and leave the memory that a prefill took."""
        kept = self._spared().topk(count).indices.sort().values  # (B, Hkv, count)
        before, self.held = self._stored, count
        self.keys, self.values, self.positions, self.scores = self._allocated(before)
        for stored, old in zip(self._stored, before, strict=True):
            stored[:, :, :count] = _rows(old, kept)

    def _spared(self) -> torch.Tensor:
        """The ranking, in which no first or recent token is low."""
        ranks, positions = self.ranking(), self.positions[:, :, : self.held]
        if self.recent:
            ranks = ranks.masked_fill(positions >= self.seen - self.recent, float("inf"))
        return ranks.masked_fill(positions < self.first, float("inf")) if self.first else ranks


def _rows(stored: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """Return what lies in slots (B, Hkv, n) of a tensor (B, Hkv, slots) or (B, Hkv, slots, D)."""
    return stored.gather(2, slots if stored.dim() == 3 else slots[..., None].expand(-1, -1, -1, stored.shape[3]))
