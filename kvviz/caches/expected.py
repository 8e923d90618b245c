"""Expected Attention: keeps the tokens to which queries still to come can be expected to attend most.

The queries of a head are nearly normally distributed. So the newest ones tell, by their mean μ and their covariance Σ,
what weight a future query gives a key k on average, before anybody has asked: E[exp(q·k/√D)] = exp(μ·k/√D + kᵀΣk/2D).
The positions are those of the queries to come: each query is rotated back to position 0, and μ and Σ are rotated by
the mean rotation of the next FUTURE positions. The score is that expectation, as a share over all keys, times the
length of the value. Devoto et al., https://arxiv.org/abs/2510.00636

After the prefill the statistics are those of its queries; in a decode of the last `at_once`, which are kept for it.
"""

from typing import Any

import torch

from kvviz.base.errors import KvvizError
from kvviz.caches.designs import SINKS
from kvviz.caches.evicting import Evicting, Rotate

FUTURE = 512  # positions over which the rotation is averaged, as in kvpress


class Expected(Evicting):
    """Evicts `at_once` tokens together, those with the lowest expected attention; the first SINKS tokens stay.

    `met` (B, H, at_once, D) are the newest queries; that of position p lies in slot p mod at_once. It needs no weights
    of attention, so a fused kernel can compute them.
    """

    queries = 0
    meets = True
    first = SINKS

    def __init__(self, **sizes: Any) -> None:
        super().__init__(**sizes)
        self.met = torch.empty(0, 0, 0, 0)

    def meet(self, queries: torch.Tensor, rotate: Rotate, scaling: float) -> None:
        new, first = queries.shape[2], self.seen - queries.shape[2]
        if queries.shape[3] != self.keys.shape[3]:
            raise KvvizError(
                "Expected Attention multiplies queries with the keys that are kept, and this model keeps another row "
                "for each token: take h2o, tova or snapkv, or take cached"
            )
        if not self.met.numel():
            self.met = queries.new_empty(*queries.shape[:2], self.at_once, queries.shape[3])
        newest = queries[:, :, -self.at_once :]
        if new == 1:
            slot = first % self.at_once
            self.met[:, :, slot : slot + 1] = newest
        else:
            slots = torch.arange(self.seen - newest.shape[2], self.seen, device=newest.device) % self.at_once
            self.met.index_copy_(2, slots, newest)
        if self.held >= self.budget:  # the next token, or the end of this prefill, evicts
            if new == 1:
                queries = self._filled_met
                oldest, slots = self.seen - queries.shape[2], torch.arange(queries.shape[2], device=queries.device)
                positions = oldest + (slots - oldest) % queries.shape[2]
            else:
                positions = torch.arange(max(SINKS, first), self.seen, device=queries.device)
            self._score(rotate(queries[:, :, -len(positions) :], -positions, False), rotate, scaling)

    @property
    def _filled_met(self) -> torch.Tensor:
        return self.met[:, :, : min(self.seen, self.at_once)]

    def _score(self, queries: torch.Tensor, rotate: Rotate, scaling: float) -> None:
        """Score all tokens held by the statistics of queries (B, H, T, D) at position 0.

        kᵀΣk is the sum of the squares of k's products with the rows of any matrix C for which CᵀC = Σ: with the
        queries' distances from their mean, or if these are many, with the D rows that QR makes of them.
        """
        queries, ahead = queries.float(), self.seen + torch.arange(FUTURE, device=queries.device)
        mean = queries.mean(2, keepdim=True)
        apart = (queries - mean) * (2 * queries.shape[2]) ** -0.5  # CᵀC = Σ/2
        if apart.shape[2] > apart.shape[3]:
            apart = torch.linalg.qr(apart, mode="r").R
        rows = rotate(torch.cat([mean, apart], dim=2), ahead, True) * scaling  # (B, H, 1 + rows of C, D)
        keys, values = (x[:, :, : self.held].float() for x in (self.keys, self.values))
        grouped = rows.unflatten(1, (keys.shape[1], -1))  # by the KV head that query heads share
        products = (grouped.flatten(2, 3) @ keys.mT).unflatten(2, grouped.shape[2:4])
        expected = products[..., 0, :] + products[..., 1:, :].square().sum(-2)  # (B, Hkv, query heads, held)
        self.scores[:, :, : self.held] = expected.softmax(-1).mean(2) * values.norm(dim=-1)

    def filled(self) -> dict[str, torch.Tensor]:
        return {**super().filled(), "met": self._filled_met}

    @property
    def beside_bytes(self) -> int:
        return super().beside_bytes + self._filled_met.nbytes

    def reorder(self, rows: torch.Tensor) -> None:
        super().reorder(rows)
        if self.shape is not None:
            self.met = self.met.index_select(0, rows)

    def _empty(self) -> None:
        super()._empty()
        self.met = torch.empty(0, 0, 0, 0)
