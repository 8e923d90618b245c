"""Whose block is whose: reference counts, the free list, and blocks found again by what stands in them.

No tensor here. A block is a number; who owns the memory (`paged.py`) uses it as an index. After the block manager of
vLLM, PagedAttention, https://arxiv.org/abs/2309.06180
"""

import hashlib
from array import array

from kvviz.base.errors import KvvizError

BLOCK = 16  # tokens of a block, as in vLLM


class OutOfBlocks(KvvizError):
    """Every block is in use: someone has to wait, or to give theirs back."""


class Blocks:
    """The books of numbered blocks. `limit` is how many there may be; without it new ones are made as they are needed.

    `refs[block]` counts the tables that a block stands in; at 0 it lies in the free list, the longest unused first.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.refs: list[int] = []
        self._free: dict[int, None] = {}  # an ordered set

    @property
    def free(self) -> list[int]:
        """The blocks that nobody uses, the next one to be taken first."""
        return list(self._free)

    @property
    def used(self) -> int:
        """How many blocks stand in a table."""
        return len(self.refs) - len(self._free)

    @property
    def available(self) -> int | None:
        """How many can still be taken; None where there is no limit."""
        return None if self.limit is None else self.limit - self.used

    def take(self) -> int:
        """A block for one owner: a free one, else a new one. Raises OutOfBlocks at the limit."""
        block = self._reusable()
        if block is None:
            if self.limit is not None and len(self.refs) >= self.limit:
                raise OutOfBlocks(f"all {self.limit:,} blocks are in use; free a sequence, or make more of them")
            block = len(self.refs)
            self.refs.append(0)
        self._free.pop(block, None)
        self.refs[block] = 1
        return block

    def _reusable(self) -> int | None:
        return next(iter(self._free), None)

    def share(self, block: int) -> int:
        """One more owner for a block that is in use."""
        if not self.refs[block]:
            raise KvvizError(f"block {block} is free; only a block in use can be shared")
        self.refs[block] += 1
        return block

    def drop(self, block: int) -> None:
        """One owner less; without any it is free."""
        if not self.refs[block]:
            raise KvvizError(f"block {block} is free already")
        self.refs[block] -= 1
        if not self.refs[block]:
            self._free[block] = None

    def check(self, tables: list[list[int]]) -> None:
        """Hold the books against all tables there are. Raises AssertionError at the first thing that is wrong."""
        standing = [0] * len(self.refs)
        for table in tables:
            for block in table:
                standing[block] += 1
        assert standing == self.refs, "a block's count is not the number of tables that it stands in"
        assert set(self._free) == {b for b, count in enumerate(self.refs) if not count}, "free and unused differ"


class FoundBlocks(Blocks):
    """Blocks that can be found again by a digest of all tokens up to their end, even after their last owner has gone.

    As in vLLM's automatic prefix caching, https://docs.vllm.ai/en/latest/design/prefix_caching.html
    A block that is free and known is only overwritten when there is no other left, the longest unused first.
    """

    def __init__(self, limit: int | None = None) -> None:
        super().__init__(limit)
        self._known: dict[bytes, int] = {}
        self._digests: dict[int, bytes] = {}
        self.forgotten = 0  # known blocks that were overwritten

    def find(self, digest: bytes) -> int | None:
        """The block with that content, for one more owner; None where there is none."""
        block = self._known.get(digest)
        if block is not None:
            self._free.pop(block, None)
            self.refs[block] += 1
        return block

    def know(self, block: int, digest: bytes) -> None:
        """A block is full: note what stands in it, unless another has the same."""
        if digest not in self._known:
            self._known[digest] = block
            self._digests[block] = digest

    def forget(self, block: int) -> None:
        """A block is about to be written to: nobody shall find it by what stood in it."""
        digest = self._digests.pop(block, None)
        if digest is not None:
            del self._known[digest]

    @property
    def known_free(self) -> list[int]:
        """Free blocks that could still be found."""
        return [block for block in self._free if block in self._digests]

    def _reusable(self) -> int | None:
        plain = next((block for block in self._free if block not in self._digests), None)
        if plain is not None or self.limit is None or len(self.refs) < self.limit:
            return plain
        oldest = next(iter(self._free), None)
        if oldest is not None:
            self.forget(oldest)
            self.forgotten += 1
        return oldest

    def check(self, tables: list[list[int]]) -> None:
        super().check(tables)
        assert {d: b for b, d in self._digests.items()} == self._known, "a digest leads to another block than its own"


def digest_of(before: bytes, tokens: list[int]) -> bytes:
    """The digest of a block's tokens and of all before it: like tokens after another beginning are another block."""
    return hashlib.sha256(before + array("q", tokens).tobytes()).digest()
