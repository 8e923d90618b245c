"""The block tables of a paged cache: which blocks a sequence has, which are free, and which can be used again.

No tensor here: a block is a number, and the owner of the memory (`paged.py`) uses it as an index. After vLLM's block
manager, PagedAttention, https://arxiv.org/abs/2309.06180, and its automatic prefix caching,
https://docs.vllm.ai/en/latest/design/prefix_caching.html
"""

import hashlib
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from kvviz.base.errors import KvvizError
from kvviz.memory.engine_views import BLOCK

Eviction = Literal["lru", "hits"]  # which cached block goes first
EVICTIONS: tuple[Eviction, ...] = ("lru", "hits")


class OutOfBlocks(KvvizError):
    """Every block is in use: a sequence has to wait, or to give its blocks back."""


class BlockPool:
    """Numbered blocks, their owners, and the hashes of what they hold; without a `limit`, there are always more.

    `refs[block]` counts the tables that a block is in; at 0 it is free. A free block whose hash is known can still be
    hit. It is overwritten only if no other block is left. Then `evict` says which goes first: the one unused for
    longest ("lru"), or of those with the fewest hits the one unused for longest ("hits").
    """

    def __init__(self, limit: int | None = None, evict: Eviction = "lru") -> None:
        self.limit, self.evict = limit, evict
        self.refs: list[int] = []
        self.evictions = 0  # cached blocks that were overwritten
        self._free: dict[int, None] = {}  # an ordered set, the longest unused first
        self._cached: dict[bytes, int] = {}
        self._hashes: dict[int, bytes] = {}
        self._hits: dict[int, int] = {}  # of cached blocks

    @property
    def free(self) -> list[int]:
        """The blocks that no table has, the longest unused first."""
        return list(self._free)

    @property
    def cached_free(self) -> list[int]:
        """Free blocks that can still be hit."""
        return [block for block in self._free if block in self._hashes]

    @property
    def used(self) -> int:
        """How many blocks are in a table."""
        return len(self.refs) - len(self._free)

    def take(self) -> int:
        """A block for one owner: a free one that is not cached, else a new one, else a cached one, by `evict`.

        Raises OutOfBlocks at the limit.
        """
        block = next((block for block in self._free if block not in self._hashes), None)
        if block is None and (self.limit is None or len(self.refs) < self.limit):
            block = len(self.refs)
            self.refs.append(0)
        if block is None:
            oldest = next(iter(self._free), None)
            block = oldest if self.evict == "lru" else min(self._free, key=self._hits.__getitem__, default=None)
            if block is None:
                raise OutOfBlocks(f"all {self.limit:,} blocks are in use; free a sequence, or make more of them")
            self.forget(block)
            self.evictions += 1
        self._free.pop(block, None)
        self.refs[block] = 1
        return block

    def share(self, block: int) -> int:
        """Add an owner to a block that is in use."""
        if not self.refs[block]:
            raise KvvizError(f"block {block} is free; only a block in use can be shared")
        self.refs[block] += 1
        return block

    def drop(self, block: int) -> None:
        """Remove an owner from a block; a block without any is free."""
        if not self.refs[block]:
            raise KvvizError(f"block {block} is free already")
        self.refs[block] -= 1
        if not self.refs[block]:
            self._free[block] = None

    def hit(self, block_hash: bytes) -> int | None:
        """The block with that hash, with one more owner; None if no block has it."""
        block = self._cached.get(block_hash)
        if block is not None:
            self._free.pop(block, None)
            self.refs[block] += 1
            self._hits[block] += 1
        return block

    def find(self, block_hash: bytes) -> int | None:
        """The block that `hit` would give."""
        return self._cached.get(block_hash)

    def remember(self, block: int, block_hash: bytes) -> None:
        """Make a full block available to `hit`."""
        self._cached[block_hash] = block
        self._hashes[block] = block_hash
        self._hits[block] = 0

    def forget(self, block: int) -> None:
        """Make a block unavailable to `hit`, because it is about to be overwritten."""
        block_hash = self._hashes.pop(block, None)
        if block_hash is not None:
            del self._cached[block_hash], self._hits[block]


def block_hash(before: bytes, tokens: list[int]) -> bytes:
    """The hash of a block from the hash of the block before it: the same tokens after a different prefix differ."""
    return hashlib.sha256(before + array("q", tokens).tobytes()).digest()


@dataclass
class Table:
    """One sequence: its blocks in order, its length in tokens, and how many blocks its window has dropped in front."""

    blocks: list[int] = field(default_factory=list)
    length: int = 0
    dropped: int = 0
    ids: list[int] = field(default_factory=list)  # its tokens, as far as `note` has said them
    hashes: list[bytes] = field(default_factory=list)  # of its full blocks, as far as their tokens are known


class Write(NamedTuple):
    """An instruction: write `tokens` tokens, from the append's token `start` on, into `block` from `slot` on.

    If `copy_of` is a block, the first `slot` tokens of that one are copied first (copy on write).
    """

    block: int
    slot: int
    start: int
    tokens: int
    copy_of: int | None


class BlockTables:
    """The tables of many sequences over one pool. `block` is the number of tokens in a block.

    A sequence takes a block when its last one is full, so at most block - 1 of its slots are empty. Full blocks whose
    tokens are known (`note`) are kept once: two sequences with the same prefix share them.
    """

    def __init__(self, pool: BlockPool | None = None, block: int = BLOCK) -> None:
        self.pool = BlockPool() if pool is None else pool
        self.block = block
        self.sequences: dict[int, Table] = {}
        self._last = 0

    def new(self, table: Table | None = None) -> int:
        """Start a sequence; return the number that identifies it."""
        self._last += 1
        self.sequences[self._last] = table or Table()
        return self._last

    def new_with_prefix(self, ids: list[int]) -> tuple[int, int]:
        """Start a sequence with the cached blocks of its prompt `ids`; return its number and the tokens it has.

        At least one token is left to compute, since its logits are needed. With blocks of 4 and all of [1..8] cached,
        the prompts [1..8] and [1..9] start with 4 and with 8 tokens.
        """
        table = Table()
        for start in range(0, len(ids) - self.block, self.block):
            table.ids += ids[start : start + self.block]
            if not self._take_cached(table):
                del table.ids[start:]
                break
        return self.new(table), table.length

    def note(self, sequence: int, ids: list[int]) -> None:
        """Learn the ids of the tokens that the next append brings."""
        self.sequences[sequence].ids += ids

    def append(self, sequence: int, tokens: int) -> Iterator[Write]:
        """Add tokens to a sequence, and yield each write just before it has to be done.

        A whole block that is a cache hit is not written. Raises OutOfBlocks, with nothing added.
        """
        table, before = self.sequences[sequence], self.sequences[sequence].length
        try:
            while table.length < before + tokens:
                slot, start = table.length % self.block, table.length - before
                count = min(self.block - slot, tokens - start)
                if count == self.block and self._take_cached(table):
                    continue
                copy_of = self._writable_block(table, slot)
                yield Write(table.blocks[-1], slot, start, count, copy_of)
                table.length += count
                if table.length % self.block == 0:
                    self._remember_full(table)
        except OutOfBlocks:
            self.crop(sequence, table.length - before)
            raise

    def _take_cached(self, table: Table) -> bool:
        """Add the next block to a table if it is a cache hit."""
        hashed = self._next_hash(table)
        block = self.pool.hit(hashed) if hashed else None
        if hashed is None or block is None:
            return False
        table.blocks.append(block)
        table.hashes.append(hashed)
        table.length += self.block
        return True

    def _writable_block(self, table: Table, slot: int) -> int | None:
        """Give a table a last block of its own to write from `slot` on; return the shared block to copy, if any."""
        copy_of = None
        if slot == 0:
            table.blocks.append(self.pool.take())
        elif self.pool.refs[table.blocks[-1]] > 1:
            copy_of, table.blocks[-1] = table.blocks[-1], self.pool.take()
            self.pool.drop(copy_of)
        self.pool.forget(table.blocks[-1])  # after a crop it may have been full and cached
        return copy_of

    def _remember_full(self, table: Table) -> None:
        """Cache a block that has become full; if another block has the same hash, the table takes that one."""
        hashed = self._next_hash(table)
        if hashed is None:
            return
        table.hashes.append(hashed)
        same = self.pool.hit(hashed)
        if same is None:
            self.pool.remember(table.blocks[-1], hashed)
        else:
            self.pool.drop(table.blocks[-1])
            table.blocks[-1] = same

    def _next_hash(self, table: Table) -> bytes | None:
        """The hash of the first block of a table that has none yet; None if not all of its tokens are known."""
        start = len(table.hashes) * self.block
        tokens = table.ids[start : start + self.block]
        if len(tokens) < self.block or start + self.block < table.length:
            return None
        return block_hash(table.hashes[-1] if table.hashes else b"", tokens)

    def fork(self, sequence: int) -> int:
        """Start a second sequence with the same tokens: it shares every block, and nothing is copied yet."""
        old = self.sequences[sequence]
        blocks = [self.pool.share(block) for block in old.blocks]
        return self.new(Table(blocks, old.length, old.dropped, list(old.ids), list(old.hashes)))

    def restore(self, sequence: int, saved: Table) -> list[tuple[int, int]]:
        """Give a sequence all that `saved` had; return (i, block) where block i of `saved` has to be copied to.

        What it has, which are cache hits, and further hits need no copy. Raises OutOfBlocks.
        """
        table, missing = self.sequences[sequence], list[tuple[int, int]]()
        if table.length >= saved.length:
            return missing
        self.drop_front(sequence, min(saved.dropped, len(table.blocks)) * self.block)
        table.length, table.dropped = saved.length, saved.dropped
        table.ids, table.hashes = list(saved.ids), list(saved.hashes)
        for place in range(len(table.blocks), len(saved.blocks)):
            known = table.hashes[place + saved.dropped :][:1]
            block = self.pool.hit(known[0]) if known else None
            if block is None:
                block = self.pool.take()
                missing.append((place, block))
                if known:
                    self.pool.remember(block, known[0])
            table.blocks.append(block)
        return missing

    def release(self, sequence: int) -> None:
        """End a sequence: each of its blocks loses an owner."""
        for block in reversed(self.sequences.pop(sequence).blocks):  # the last first, so that a prefix is evicted later
            self.pool.drop(block)

    def crop(self, sequence: int, tokens: int) -> None:
        """Remove the newest tokens of a sequence; blocks that are empty then are given back."""
        table = self.sequences[sequence]
        table.length -= tokens
        while len(table.blocks) + table.dropped > -(-table.length // self.block):
            self.pool.drop(table.blocks.pop())
        del table.ids[table.length :], table.hashes[table.length // self.block :]

    def drop_front(self, sequence: int, tokens: int) -> None:
        """Give back the blocks that hold nothing but the first `tokens` tokens, which a window has moved past."""
        table = self.sequences[sequence]
        while table.dropped < tokens // self.block:
            self.pool.drop(table.blocks.pop(0))
            table.dropped += 1

    def filled(self, sequences: Iterable[int]) -> dict[int, int]:
        """The blocks of some sequences, each once, and how many of its slots hold a token for one of them."""
        most: dict[int, int] = {}
        for table in map(self.sequences.__getitem__, sequences):
            for place, block in enumerate(table.blocks, table.dropped):
                most[block] = max(most.get(block, 0), min(self.block, table.length - place * self.block))
        return most
