"""What one layer keeps from step to step: the keys and values of all tokens so far."""

from dataclasses import dataclass
from typing import Protocol

import torch


class Cache(Protocol):
    """What attention asks of a layer's cache, however that keeps its tokens."""

    @property
    def seen(self) -> int:
        """Tokens that have passed: the next one stands at this position."""
        ...

    def append(self, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Take the new tokens' (B, Hkv, T, D); hand back those of all tokens that attention may look at."""
        ...


@dataclass(eq=False)
class LayerCache:
    """The simplest one: new keys and values are joined on to the old along the time axis.

    Every step copies all that is kept into a new tensor, O(T_total). `k` and `v` are (B, Hkv, T_total, D).
    """

    k: torch.Tensor | None = None
    v: torch.Tensor | None = None

    @property
    def seen(self) -> int:
        return 0 if self.k is None else self.k.shape[2]

    def append(self, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.k = k if self.k is None else torch.cat([self.k, k], dim=2)
        self.v = v if self.v is None else torch.cat([self.v, v], dim=2)
        return self.k, self.v
