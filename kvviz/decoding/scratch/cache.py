"""What one layer keeps from step to step: all keys and values so far, concatenated or in a buffer."""

from dataclasses import dataclass
from typing import Protocol

import torch


class Cache(Protocol):
    """What attention asks of a layer's cache, whatever its design."""

    @property
    def seen(self) -> int:
        """The number of tokens so far, which is the position of the next one."""

    def append(self, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keep the new tokens' keys and values (B, Hkv, T, D); return those that attention may use."""


@dataclass(eq=False)
class LayerCache:
    """The simplest cache: it concatenates new keys and values to the old ones along the time axis.

    Every step copies the whole cache into a new tensor, O(T_total). `k` and `v` are (B, Hkv, T_total, D).
    """

    k: torch.Tensor | None = None
    v: torch.Tensor | None = None

    @property
    def seen(self) -> int:
        return 0 if self.k is None else self.k.shape[2]

    def append(self, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        k = k if self.k is None else torch.cat([self.k, k], dim=2)
        v = v if self.v is None else torch.cat([self.v, v], dim=2)
        self.k, self.v = k, v
        return k, v


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
