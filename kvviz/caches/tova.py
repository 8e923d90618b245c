"""TOVA: the newest token's attention decides alone, and all heads of a layer keep the same tokens.

A token's score is the weight that the newest query gives it, as a mean over the heads. There is no window and there are
no sinks; whether the first tokens stay is up to the model. Oren et al., https://arxiv.org/abs/2401.06104
"""

import torch

from kvviz.caches.evicting import Evicting


class Tova(Evicting):
    """Evicts the token to which the newest query attends least."""

    queries = 1

    def observe(self, weights: torch.Tensor, *, after: int) -> None:
        self.scores[:, :, : self.held] = weights[:, :, -1].mean(1, keepdim=True)
