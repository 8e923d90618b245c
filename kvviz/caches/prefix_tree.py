"""The radix tree of prefixes that requests have left in a block pool: read off its hashes after each request.

Whether a block is there is what the pool says; which block follows which is said by the tokens of the requests. As the
tree of RadixAttention, https://arxiv.org/abs/2312.07104 , whose nodes are runs of tokens. No tensor here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from kvviz.caches.block_table import BLOCK, BlockPool, block_hash

# Of a block: the last request hit it, computed it for the first time or again; it is kept from before; it was evicted
# for the last request, or earlier.
State = Literal["hit", "computed", "again", "kept", "evicted", "gone"]


@dataclass(frozen=True)
class Run:
    """Blocks one after another that the same requests have; `first` is the position of their first token.

    `requests` are numbered in the order in which they were served.
    """

    first: int
    requests: list[int]
    states: list[State]
    children: list["Run"]


def every(runs: Sequence[Run]) -> Iterator[Run]:
    """All runs of a tree."""
    for run in runs:
        yield run
        yield from every(run.children)


class PrefixTree:
    """The prefixes of the requests that were served one after another from `pool`."""

    def __init__(self, pool: BlockPool, block: int = BLOCK) -> None:
        self.pool, self.block = pool, block
        self._requests: dict[bytes, list[int]] = {}  # by the hash of a block, the oldest first
        self._follow: dict[bytes, list[bytes]] = {b"": []}  # the blocks that come after a block, or at the start
        self._there: set[bytes] = set()
        self._served = 0

    def served(self, ids: Sequence[int], hits: int) -> list[Run]:
        """Look at the pool after one more request: `ids` were in its cache, the first `hits` of them as cache hits."""
        own, known = list(self._hashes(ids)), set(self._requests)
        for before, hashed in zip([b"", *own], own, strict=False):
            if hashed not in self._requests:
                self._requests[hashed], self._follow[hashed] = [], []
                self._follow[before].append(hashed)
            self._requests[hashed].append(self._served)
        self._served += 1
        there = {hashed for hashed in self._requests if self.pool.find(hashed) is not None}
        states: dict[bytes, State] = {}
        for hashed in self._requests:
            if hashed in there:
                states[hashed] = "kept"
            else:
                states[hashed] = "evicted" if hashed in self._there else "gone"
        for place, hashed in enumerate(own):
            if place < hits // self.block:
                states[hashed] = "hit"
            elif hashed not in self._there:
                states[hashed] = "again" if hashed in known else "computed"
        self._there = there
        return [self._run(hashed, 0, states) for hashed in self._follow[b""]]

    def _hashes(self, ids: Sequence[int]) -> Iterator[bytes]:
        before = b""
        for start in range(0, len(ids) - self.block + 1, self.block):
            before = block_hash(before, list(ids[start : start + self.block]))
            yield before

    def _run(self, hashed: bytes, first: int, states: dict[bytes, State]) -> Run:
        """The run that begins with a block: as long as all of its requests go on in the same way."""
        requests, run = self._requests[hashed], [states[hashed]]
        while (after := self._follow[hashed]) and self._requests[after[0]] == requests:
            hashed = after[0]
            run.append(states[hashed])
        end = first + len(run) * self.block
        return Run(first, list(requests), run, [self._run(child, end, states) for child in after])
