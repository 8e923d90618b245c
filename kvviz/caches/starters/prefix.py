import torch

from kvviz.caches.base import Pair
from kvviz.caches.starters.paged import BLOCK, Paged


class Prefix(Paged):
    title = "Prefix"
    summary = "paged; a full block of the same tokens after the same beginning is kept once for all sequences"
    windows = "ring"  # a layer with a window gets kvviz's ring: this class need not think of windows
    reads = True  # `note` is called with the new tokens' ids before they are appended
    less = "Shared blocks are kept once: the formula, which counts each sequence,"
    exercise = "prefix"

    def __init__(self, *, window: int | None = None, capacity: int | None = None) -> None:
        super().__init__(window=window, capacity=capacity)
        self.ids: list[list[int]] = []  # of each sequence: the ids of all its tokens
        self.known: dict[tuple[int, ...], int] = {}  # all ids up to the end of a full block, and that block's number

    def note(self, ids: list[list[int]]) -> None:
        """Learn the ids of the tokens that the next append brings, a row for each sequence."""
        self.ids = [before + new for before, new in zip(self.ids or [[] for _ in ids], ids, strict=True)]

    def _append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        """Append as a paged cache does, then keep once what two sequences share."""
        before = self.seen
        everything = super()._append(k, v)
        for row in range(k.shape[0]):
            for number in range(before // BLOCK, self.seen // BLOCK):  # the blocks that have just become full
                self.share(row, number)
        return everything

    def share(self, row: int, number: int) -> None:
        """Give a sequence's full block up for an equal one that is known, or make it known."""
        # solution
        own, beginning = self.tables[row][number], tuple(self.ids[row][: (number + 1) * BLOCK])
        other = self.known.setdefault(beginning, own)
        if other != own:
            self.tables[row][number] = other
            del self.blocks[own]
        # or, to start from
        # pass  # yours: when do two blocks hold the same keys and values?
        # end

    def free(self) -> None:
        """Release everything."""
        super().free()
        self.ids, self.known = [], {}
