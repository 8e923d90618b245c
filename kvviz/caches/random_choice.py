"""Evicts at random: the baseline that any other design has to beat, in quality at the same bytes.

Each token draws a score as it arrives, and those with the highest stay, so that of all tokens so far each is as likely
to be kept as any other. The draws come from a seed. The same baseline is in https://github.com/NVIDIA/kvpress
"""

import torch

from kvviz.caches.evicting import Evicting

SEED = 22


class Random(Evicting):
    """Evicts the token with the lowest number drawn; it needs no weights."""

    queries = 0

    def first_scores(self, positions: torch.Tensor) -> torch.Tensor:
        if not self.seen:
            self._generator = torch.Generator().manual_seed(
                SEED + self.number
            )  # the processor's: the same on every device
        return torch.rand(positions.shape, generator=self._generator).to(positions.device)
