"""The paged cache: memory in blocks of 16 tokens, and for each sequence a table of the blocks that are its own.

A sequence takes a block when its last one is full, so at most 15 slots of it are empty, however long it gets. A fork
shares its parent's blocks; who writes into a shared block first makes a copy of it (copy on write). PagedAttention,
https://arxiv.org/abs/2309.06180

A server makes one tensor of all blocks at its start and indexes into it; here a block's memory is made when it is first
taken, so the bytes allocated are those of the blocks. And a server's kernel reads the blocks where they lie; here they
are gathered into one tensor at every step, which costs a copy of the whole cache: that slowness is ours, not the
design's.
"""

from dataclasses import dataclass, field
from typing import Any

import torch

from kvviz.caches.base import KVCache, Pair, size
from kvviz.caches.block_table import BLOCK, Blocks, OutOfBlocks


@dataclass
class Table:
    """One sequence: its blocks in order, how many tokens it has, and how many blocks its window has left behind."""

    blocks: list[int] = field(default_factory=list)
    length: int = 0
    gone: int = 0
    ids: list[int] = field(default_factory=list)  # tokens, as far as they were told
    digests: list[bytes] = field(default_factory=list)  # of its full blocks, as far as their tokens are known


class Pages:
    """The memory of many sequences: `keys[block]` and `values[block]` are (Hkv, 16, D) each."""

    def __init__(self, books: Blocks | None = None, block: int = BLOCK) -> None:
        self.books = Blocks() if books is None else books
        self.block = block
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        self.tables: dict[int, Table] = {}
        self.copied = 0  # bytes written since someone set it to 0
        self._next = 0

    def new(self, table: Table | None = None) -> int:
        """A new sequence; returns the number that it goes by."""
        self._next += 1
        self.tables[self._next] = table or Table()
        return self._next

    def append(self, sequence: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """Write T new tokens of a sequence, k and v (Hkv, T, D), by block; none where OutOfBlocks is raised."""
        before = self.tables[sequence].length
        try:
            self._write(self.tables[sequence], k, v)
        except OutOfBlocks:
            self.crop(sequence, self.tables[sequence].length - before)
            raise

    def _write(self, table: Table, k: torch.Tensor, v: torch.Tensor) -> None:
        done = 0
        while done < k.shape[1]:
            slot = table.length % self.block
            count = min(self.block - slot, k.shape[1] - done)
            if self._enter(table, slot, count):
                block = table.blocks[-1]
                self._memory(block, k, v)
                self.keys[block][:, slot : slot + count] = k[:, done : done + count]
                self.values[block][:, slot : slot + count] = v[:, done : done + count]
                self.copied += count * self._token_bytes(block)
            table.length += count
            done += count
            self._entered(table)

    def _enter(self, table: Table, slot: int, count: int) -> bool:
        """See that the last block of a table can be written from `slot` on; False where that is not needed."""
        if slot == 0:
            table.blocks.append(self.books.take())
        elif self.books.refs[table.blocks[-1]] > 1:
            self._copy_on_write(table, slot)
        return True

    def _entered(self, table: Table) -> None:
        """After tokens were written to the last block of a table."""

    def _copy_on_write(self, table: Table, filled: int) -> None:
        """Others share the last block: the table gets a copy of its own."""
        shared, own = table.blocks[-1], self.books.take()
        self._memory(own, self.keys[shared], self.values[shared])
        self.keys[own][:, :filled] = self.keys[shared][:, :filled]
        self.values[own][:, :filled] = self.values[shared][:, :filled]
        self.copied += filled * self._token_bytes(own)
        self.books.drop(shared)
        table.blocks[-1] = own

    def _memory(self, block: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """Make a block's memory when it is used for the first time."""
        for store, like in ((self.keys, k), (self.values, v)):
            if block == len(store):
                store.append(like.new_empty(like.shape[0], self.block, like.shape[2]))

    def _token_bytes(self, block: int) -> int:
        return (size(self.keys[block]) + size(self.values[block])) // self.block

    def fork(self, sequence: int) -> int:
        """A second sequence with the same tokens so far: it shares every block, and nothing is copied yet."""
        old = self.tables[sequence]
        blocks = [self.books.share(block) for block in old.blocks]
        return self.new(Table(blocks, old.length, old.gone, list(old.ids), list(old.digests)))

    def release(self, sequence: int) -> None:
        """A sequence has ended: its blocks lose an owner each."""
        for block in reversed(self.tables.pop(sequence).blocks):  # the end goes first: a beginning is worth more
            self.books.drop(block)

    def crop(self, sequence: int, tokens: int) -> None:
        """Take back the newest tokens of a sequence; blocks that are empty then are given back."""
        table = self.tables[sequence]
        table.length -= tokens
        while len(table.blocks) + table.gone > -(-table.length // self.block):
            self.books.drop(table.blocks.pop())
        del table.ids[table.length :], table.digests[table.length // self.block :]

    def leave(self, sequence: int, tokens: int) -> None:
        """A window has left that many tokens at the front behind: give back the blocks that hold nothing else."""
        table = self.tables[sequence]
        while table.gone < tokens // self.block:
            self.books.drop(table.blocks.pop(0))
            table.gone += 1

    def read(self, sequence: int) -> Pair:
        """The keys and values of a sequence that are still there, gathered: (Hkv, tokens, D)."""
        table = self.tables[sequence]
        tokens = table.length - table.gone * self.block
        parts = ([store[block] for block in table.blocks] for store in (self.keys, self.values))
        keys, values = (torch.cat(blocks, dim=1)[:, :tokens] for blocks in parts)
        return keys, values

    def check(self) -> None:
        """Hold the books against the tables. Raises AssertionError at the first thing that is wrong."""
        self.books.check([table.blocks for table in self.tables.values()])
        for table in self.tables.values():
            assert len(table.blocks) + table.gone == -(-table.length // self.block), "blocks and length differ"


class Paged(KVCache):
    """A batch of sequences in one `Pages`: `rows[i]` is the number of sequence i."""

    gathers = True

    def __init__(self, *, pages: Pages | None = None, **fields: Any) -> None:
        super().__init__(**fields)
        self.pages = self.new_pages() if pages is None else pages
        self.rows: list[int] = []

    @staticmethod
    def new_pages() -> Pages:
        """An empty memory of the kind that this design needs."""
        return Pages()

    def _append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        if not self.rows:
            self.rows = [self.pages.new() for _ in range(k.shape[0])]
        first = not self.seen
        self.pages.copied = 0
        self._write(k, v)
        self.copied = self.pages.copied
        self.seen += k.shape[2]
        self.held += k.shape[2]
        keys, values = (k, v) if first else self._gather()  # of the very first there is nothing to gather
        for sequence in self.rows:
            self.pages.leave(sequence, self.behind)
        self.held = self.seen - self.pages.tables[self.rows[0]].gone * self.pages.block
        return keys, values

    def _write(self, k: torch.Tensor, v: torch.Tensor) -> None:
        """The new tokens of every row, or of none where there are no blocks for all of them."""
        for row, sequence in enumerate(self.rows):
            try:
                self.pages.append(sequence, k[row], v[row])
            except OutOfBlocks:
                for done in self.rows[:row]:
                    self.pages.crop(done, k.shape[2])
                raise

    def _gather(self) -> Pair:
        """All rows' blocks in one tensor each: (B, Hkv, T_all, D)."""
        keys, values = (torch.stack(parts) for parts in zip(*map(self.pages.read, self.rows), strict=True))
        self.gathered = size(keys) + size(values)
        return keys, values

    @property
    def in_use(self) -> dict[int, int]:
        """The blocks of these sequences, each once, and how many of its slots are filled."""
        pages, found = self.pages, {}
        for table in (pages.tables[row] for row in self.rows):
            for place, block in enumerate(table.blocks):
                filled = min(pages.block, table.length - (place + table.gone) * pages.block)
                found[block] = max(found.get(block, 0), filled)
        return found

    def filled(self) -> dict[str, torch.Tensor]:
        pages, found = self.pages, {}
        for block, slots in self.in_use.items():
            found[f"keys.{block}"] = pages.keys[block][:, :slots]
            found[f"values.{block}"] = pages.values[block][:, :slots]
        return found

    def storages(self) -> list[torch.UntypedStorage]:
        """Of all blocks ever made: free ones are kept for the next sequence."""
        return [tensor.untyped_storage() for tensor in (*self.pages.keys, *self.pages.values)]

    def fork(self) -> "Paged":
        """A second batch of the same sequences, in the same memory: every block is shared until one writes."""
        twin = type(self)(pages=self.pages, window=self.window, room=self.room)
        twin.seen, twin.held, twin.shape = self.seen, self.held, self.shape
        twin.dtype, twin.device = self.dtype, self.device
        twin.rows = [self.pages.fork(sequence) for sequence in self.rows]
        return twin

    def crop(self, tokens: int) -> None:
        self.check_crop(tokens)
        for sequence in self.rows:
            self.pages.crop(sequence, tokens)
        self.seen, self.held = self.seen - tokens, self.held - tokens

    def reorder(self, rows: torch.Tensor) -> None:
        """Beams change places by their tables alone: not a key is copied."""
        old = self.rows
        self.rows = [self.pages.fork(old[row]) for row in rows.tolist()]
        for sequence in old:
            self.pages.release(sequence)
        self.shape = self.shape and (len(self.rows), *self.shape[1:])

    def release(self) -> None:
        """End these sequences; their blocks stay in the memory, for others."""
        for sequence in self.rows:
            self.pages.release(sequence)
        self.rows = []
        super().free()

    def free(self) -> None:
        self.release()
        if not self.pages.tables:  # nobody else has sequences there
            self.pages = self.new_pages()

    def picture(self) -> dict[str, Any]:
        """Every block with its count of owners and its filled slots, the table of each sequence, the free list."""
        filled, books = self.in_use, self.pages.books
        return {
            "kind": "blocks",
            "block": self.pages.block,
            "blocks": [{"id": b, "refs": refs, "filled": filled.get(b, 0)} for b, refs in enumerate(books.refs)],
            "tables": [
                {"blocks": list(t.blocks), "tokens": t.length, "left_behind": t.gone}
                for t in (self.pages.tables[row] for row in self.rows)
            ],
            "free": books.free,
        }
