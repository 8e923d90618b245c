"""SnapKV: the newest queries vote on what stays, and the neighbours of what they look at stay with it.

A token's score is the sum of the weights that the last `at_once` queries gave it, as a mean over POOLED neighbours,
since a fact is more than one token. The tokens of those queries always stay. The paper evicts once, after the prefill;
here the vote is taken again whenever as many tokens have come, so that memory stays constant in a long decode too.
Li et al., https://arxiv.org/abs/2404.14469
"""

from typing import Any

import torch
from torch.nn import functional

from kvviz.caches.evicting import Evicting

POOLED = 5


class SnapKV(Evicting):
    """Evicts `at_once` tokens together, by the attention of the last `at_once` queries.

    `scores` sums up the queries that will vote next; a prefill that is too long for the budget is voted on at once.
    """

    def __init__(self, **sizes: Any) -> None:
        super().__init__(**sizes)
        self.queries = self.at_once
        self._vote: torch.Tensor | None = None

    @property
    def recent(self) -> int:
        return self.at_once

    def observe(self, weights: torch.Tensor, *, after: int) -> None:
        last, (count, held) = self.seen - after, weights.shape[2:]  # the queries are those before position `last`
        due = self.budget + max(0, -(-(self.seen - self.budget) // self.at_once)) * self.at_once
        new = min(count, last - (due - self.at_once))  # of them, those that vote next
        if new > 0:
            self.scores[:, :, :held] += self.by_head(weights[:, :, -new:].sum(2, dtype=torch.float32))
        if self.held > self.budget:
            if self._vote is None:
                self._vote = torch.zeros_like(self.scores)
            self._vote[:, :, :held] += self.by_head(weights.sum(2, dtype=torch.float32))

    def ranking(self) -> torch.Tensor:
        pooled, order = self._pooled()
        return functional.pad(torch.empty_like(pooled).scatter_(2, order, pooled), (0, self.recent))

    def _pooled(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the pooled votes on the older tokens in the order of the text, and their slots in that order."""
        votes, older = self.scores if self._vote is None else self._vote, self.held - self.recent
        order = self.positions[:, :, :older].argsort()
        return functional.avg_pool1d(votes.gather(2, order), POOLED, stride=1, padding=POOLED // 2), order

    def _leaving(self, count: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        pooled, order = self._pooled()  # the last tokens are those that voted, which stay
        return order.gather(2, pooled.topk(self.at_once, largest=False).indices), None

    def _make_room(self) -> None:
        super()._make_room()
        self.scores.zero_()

    def _keep(self, count: int) -> None:
        super()._keep(count)
        if self._vote is None:
            self.scores.zero_()
        self._vote = None
