"""A preallocated cache: a buffer with a slot for every token to come, written in place."""

import torch


class SlotCache:
    """One layer's keys and values, `k` and `v`, both (B, Hkv, slots, D); the first `seen` slots are filled."""

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
        self.k[:, :, start : self.seen], self.v[:, :, start : self.seen] = k, v
        return self.k[:, :, : self.seen], self.v[:, :, : self.seen]
