"""A preallocated cache: a buffer with a slot for every token to come, written in place."""

from collections.abc import Sequence

import torch


class SlotCache:
    """One layer's keys and values, `k` and `v`, both (B, Hkv, slots, D); the first `seen` slots are filled.

    A buffer twice as long replaces a full one; only then is what is kept copied.
    """

    def __init__(self, batch: int, heads: int, slots: int, width: int, like: torch.Tensor) -> None:
        self.k, self.v = (like.new_empty(batch, heads, slots, width) for _ in "kv")
        self.seen = 0

    @property
    def max_cache_len(self) -> int:
        """The number of slots, as transformers' static layers name it."""
        return self.k.shape[2]

    def get_seq_length(self) -> int:
        """The number of tokens seen, each of which fills a slot."""
        return self.seen

    def append(self, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new tokens' (B, Hkv, T, D) into the next slots; return views of all filled ones."""
        start, self.seen = self.seen, self.seen + k.shape[2]
        self.ensure_capacity(self.seen)
        self.k[:, :, start : self.seen], self.v[:, :, start : self.seen] = k, v
        return self.k[:, :, : self.seen], self.v[:, :, : self.seen]

    def ensure_capacity(self, tokens: int) -> bool:
        """Ensure a slot for each of so many tokens; return whether the buffer had to be replaced."""
        if tokens <= self.max_cache_len:
            return False
        self.k, self.v = (self._longer(old, max(tokens, 2 * self.max_cache_len)) for old in (self.k, self.v))
        return True

    def _longer(self, old: torch.Tensor, slots: int) -> torch.Tensor:
        new = old.new_empty(*old.shape[:2], slots, old.shape[3])
        new[:, :, : old.shape[2]] = old
        return new


def ensure_capacity(caches: Sequence[SlotCache], tokens: int) -> bool:
    """Do the same for all layers; return whether any buffer was replaced."""
    replaced = [cache.ensure_capacity(tokens) for cache in caches]  # of every layer, not up to the first
    return any(replaced)
