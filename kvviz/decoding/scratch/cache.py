"""What one layer keeps from step to step: the keys and values of all tokens so far."""

from dataclasses import dataclass
from typing import Protocol

import torch


class Cache(Protocol):
    """What attention asks of a layer's cache, whatever its design."""

    @property
    def seen(self) -> int:
        """The number of tokens so far, which is the position of the next one."""
        ...

    def append(self, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keep the new tokens' keys and values (B, Hkv, T, D); return those that attention may use."""
        ...


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
