"""H2O: half of the budget for the newest tokens, half for the heavy hitters, those that got most attention in all.

Few tokens get most of the attention, and they go on getting it. A token's score is the sum of all weights that queries
have given it so far, so a step adds one row to the scores and looks for the lowest; nothing is computed for it.
Zhang et al., https://arxiv.org/abs/2306.14048
"""

import torch

from kvviz.caches.evicting import Evicting


class H2O(Evicting):
    """Evicts the token with the least attention in all, of those outside the newer half."""

    @property
    def recent(self) -> int:
        return self.budget // 2

    def observe(self, weights: torch.Tensor, *, after: int) -> None:
        self.scores[:, :, : weights.shape[3]] += self.by_head(weights.sum(2, dtype=torch.float32))
