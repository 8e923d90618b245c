"""KVzip: keeps the tokens without which the text could not be written down again.

The model reads the text a second time, behind itself. Whoever copies looks at what is copied, so a token's score is the
highest weight that any query of this second reading gave it. That costs a forward of as many tokens, which is part of
the prefill's time, and of each step after which tokens are evicted. Kim et al., https://arxiv.org/abs/2505.23416

The paper puts a request before the second reading ("Repeat the previous context:"); a small model trained on stories
follows none, so ours reads the text alone. The paper evicts once, after the prefill; here the text is read again
whenever `at_once` tokens have come, so that memory stays constant in a long decode too.
"""

import torch

from kvviz.base.errors import KvvizError
from kvviz.caches.base import Pair
from kvviz.caches.designs import SINKS
from kvviz.caches.evicting import Evicting

CHUNK = 2_048  # tokens that are read again at a time, as in kvpress
ROOM = 16  # positions that a chunk needs at least


class KVzip(Evicting):
    """Evicts `at_once` tokens together, those of least use for writing the text again; the first SINKS tokens stay.

    A forward leaves more than the budget behind; `DesignCache` then has the model read `text` again, during which
    nothing is stored, and `settle` evicts after that. The ids of the text are kept, outside the device.
    """

    first = SINKS

    def _empty(self) -> None:
        super()._empty()
        self.text: list[list[int]] = []
        self.again = False  # the text is being read again

    @property
    def due(self) -> bool:
        """Whether the next token, or the end of this prefill, evicts: then the text has to be read again."""
        return self.held >= self.budget

    def note(self, ids: list[list[int]]) -> None:
        if not self.number:  # one layer keeps them for all
            self.text = self.text or [[] for _ in ids]
            for row, new in zip(self.text, ids, strict=True):
                row += new

    def chunks(self, context: int | None) -> list[torch.Tensor]:
        """Return the text in pieces (B, T), each short enough to stand behind the text in a model of that `context`."""
        room = CHUNK if context is None else min(CHUNK, context - self.seen)
        if room < min(ROOM, self.seen):
            raise KvvizError(
                f"KVzip reads the text a second time behind itself, and after {self.seen:,} tokens this model has "
                f"{max(0, room):,} positions left: take a shorter text, or another design"
            )
        if not self.text:
            raise KvvizError(
                "KVzip was not told which tokens came, so it can't read them again; call `note` before each forward"
            )
        return list(torch.tensor(self.text, device=self.device).split(room, dim=1))

    def begin(self) -> None:
        """Forget the scores: the text will be read again."""
        self.again = True
        self.scores[:, :, : self.held] = 0

    def end(self) -> None:
        """Evict by the scores of the second reading."""
        self.again = False
        super().settle()

    def observe(self, weights: torch.Tensor, *, after: int) -> None:
        if self.again:
            most = weights[..., : self.held].amax(2).unflatten(1, (self.positions.shape[1], -1)).amax(2)
            torch.maximum(self.scores[:, :, : self.held], most.float(), out=self.scores[:, :, : self.held])

    def settle(self) -> None:
        """Evict nothing yet: the second reading comes first."""
        self._unseen = False

    def reorder(self, rows: torch.Tensor) -> None:
        super().reorder(rows)
        self.text = [list(self.text[row]) for row in rows.tolist()] if self.text else []

    def span(self, new: int) -> tuple[int, int]:
        return (self.held + new, self.seen - self.held) if self.again else super().span(new)

    def _append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        if not self.again:
            return super()._append(k, v)
        return torch.cat([self.keys[:, :, : self.held], k], dim=2), torch.cat(
            [self.values[:, :, : self.held], v], dim=2
        )
