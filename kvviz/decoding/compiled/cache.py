"""A cache that stays where it is: a buffer with a slot for every token to come, written in place."""

from collections.abc import Sequence

import torch


class SlotCache:
    """One layer's keys and values, `k` and `v`, both (B, Hkv, slots, D); the first `seen` slots are filled.

    A full buffer is replaced by one twice as long: the one time that what is kept is copied.
    """

    def __init__(self, batch: int, heads: int, slots: int, width: int, like: torch.Tensor) -> None:
        self.k, self.v = (like.new_empty(batch, heads, slots, width) for _ in "kv")
        self.seen = 0

    @property
    def max_cache_len(self) -> int:
        """How many tokens there is room for."""
        return self.k.shape[2]

    def get_seq_length(self) -> int:
        """How many tokens have been seen, each of which fills a slot."""
        return self.seen

    def append(self, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new tokens' (B, Hkv, T, D) into the next slots; views of all that are filled."""
        start, self.seen = self.seen, self.seen + k.shape[2]
        self.make_room(self.seen)
        self.k[:, :, start : self.seen], self.v[:, :, start : self.seen] = k, v
        return self.k[:, :, : self.seen], self.v[:, :, : self.seen]

    def make_room(self, tokens: int) -> bool:
        """See to it that so many tokens have a slot; whether the buffer had to be replaced for it."""
        if tokens <= self.max_cache_len:
            return False
        self.k, self.v = (self._longer(old, max(tokens, 2 * self.max_cache_len)) for old in (self.k, self.v))
        return True

    def _longer(self, old: torch.Tensor, slots: int) -> torch.Tensor:
        new = old.new_empty(*old.shape[:2], slots, old.shape[3])
        new[:, :, : old.shape[2]] = old
        return new


def make_room(caches: Sequence[SlotCache], tokens: int) -> bool:
    """The same for all layers: whether any of them was replaced."""
    return max([cache.make_room(tokens) for cache in caches])  # of every layer, not up to the first
