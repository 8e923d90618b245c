"""The paged cache: memory in blocks of 16 tokens, and for each sequence a table of its blocks (`block_table.py`).

A server makes one tensor of all blocks at its start and indexes into it; here a block's memory is allocated when it is
first written, so the bytes allocated are those of the blocks. A server's kernel reads the blocks in place; here each
step gathers them into one tensor, which copies the whole cache: that slowness is ours, not the design's.
PagedAttention, https://arxiv.org/abs/2309.06180
"""

import torch

from kvviz.caches.base import KVCache, Pair, Picture
from kvviz.caches.block_table import BLOCK, BlockTables, OutOfBlocks


class Pages:
    """The memory of many sequences: `keys[block]` and `values[block]` are (Hkv, 16, D) each; `tables` has the rest."""

    def __init__(self, tables: BlockTables | None = None) -> None:
        self.tables = BlockTables() if tables is None else tables
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []

    def append(self, sequence: int, k: torch.Tensor, v: torch.Tensor) -> int:
        """Write T new tokens of a sequence, k and v (Hkv, T, D); return the bytes written.

        Raises OutOfBlocks, with nothing added to the sequence.
        """
        tokens = 0
        for block, slot, start, count, copy_of in self.tables.append(sequence, k.shape[1]):
            for store, new in ((self.keys, k), (self.values, v)):
                if block == len(store):  # its first use
                    store.append(new.new_empty(new.shape[0], self.tables.block, new.shape[2]))
                if copy_of is not None:
                    store[block][:, :slot] = store[copy_of][:, :slot]
                store[block][:, slot : slot + count] = new[:, start : start + count]
            tokens += count if copy_of is None else slot + count
        return tokens * (k.nbytes + v.nbytes) // k.shape[1]

    def read(self, sequence: int) -> Pair:
        """Gather the keys and values that a sequence still has: (Hkv, tokens, D)."""
        table = self.tables.sequences[sequence]
        tokens = table.length - table.dropped * self.tables.block
        parts = ([store[block] for block in table.blocks] for store in (self.keys, self.values))
        keys, values = (torch.cat(blocks, dim=1)[:, :tokens] for blocks in parts)
        return keys, values


class Paged(KVCache):
    """A batch of sequences in one `Pages`: `rows[i]` is the number of sequence i."""

    def __init__(self, *, pages: Pages | None = None, window: int | None = None, capacity: int | None = None) -> None:
        super().__init__(window=window, capacity=capacity)
        self.pages = Pages() if pages is None else pages
        self.rows: list[int] = []

    @classmethod
    def formula(cls, tokens: int, window: int | None, heads: int, key_dim: int, value_dim: int, element: int) -> int:
        """Bytes as in the base class, but that a window drops whole blocks."""
        dropped = 0 if window is None else max(0, tokens - window + 1) // BLOCK * BLOCK
        return (tokens - dropped) * heads * (key_dim + value_dim) * element

    def _append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        tables = self.pages.tables
        if not self.rows:
            self.rows = [tables.new() for _ in range(k.shape[0])]
        first = not self.seen
        self._write(k, v)
        self.seen += k.shape[2]
        keys, values = (k, v) if first else self._gather()  # at the very first there is nothing to gather
        for sequence in self.rows:
            tables.drop_front(sequence, self.behind)
        self.held = self.seen - tables.sequences[self.rows[0]].dropped * tables.block
        return keys, values

    def _write(self, k: torch.Tensor, v: torch.Tensor) -> None:
        """Write the new tokens of every row, or of none if there are not enough blocks for all."""
        for row, sequence in enumerate(self.rows):
            try:
                self.copied += self.pages.append(sequence, k[row], v[row])
            except OutOfBlocks:
                for done in self.rows[:row]:
                    self.pages.tables.crop(done, k.shape[2])
                raise

    def _gather(self) -> Pair:
        """Copy each row's blocks into one tensor: (B, Hkv, T_all, D)."""
        keys, values = (torch.stack(parts) for parts in zip(*map(self.pages.read, self.rows), strict=True))
        self.gathered = keys.nbytes + values.nbytes
        return keys, values

    @property
    def in_use(self) -> dict[int, int]:
        """The blocks of these sequences, each once, and how many of its slots are filled."""
        return self.pages.tables.filled(self.rows)

    def filled(self) -> dict[str, torch.Tensor]:
        pages, tensors = self.pages, {}
        for block, slots in self.in_use.items():
            tensors[f"keys.{block}"] = pages.keys[block][:, :slots]
            tensors[f"values.{block}"] = pages.values[block][:, :slots]
        return tensors

    def storages(self) -> list[torch.UntypedStorage]:
        """The storages of all blocks ever made: free ones are kept for the next sequence."""
        return [tensor.untyped_storage() for tensor in (*self.pages.keys, *self.pages.values)]

    def _crop(self, tokens: int) -> None:
        for sequence in self.rows:
            self.pages.tables.crop(sequence, tokens)

    def reorder(self, rows: torch.Tensor) -> None:
        """Exchange beams by their tables alone: no key is copied."""
        old = self.rows
        self.rows = [self.pages.tables.fork(old[row]) for row in rows.tolist()]
        for sequence in old:
            self.pages.tables.release(sequence)
        self.shape = self.shape and (len(self.rows), *self.shape[1:])

    def free(self) -> None:
        for sequence in self.rows:
            self.pages.tables.release(sequence)
        self.rows = []
        super().free()
        if not self.pages.tables.sequences:  # no other batch uses this memory
            self.pages = Pages()

    def picture(self) -> Picture:
        """Every block with its number of owners and its filled slots, the table of each sequence, the free list."""
        filled, tables = self.in_use, self.pages.tables
        rows = [tables.sequences[row] for row in self.rows]
        return {
            "kind": "blocks",
            "block": tables.block,
            "blocks": [{"id": b, "refs": refs, "filled": filled.get(b, 0)} for b, refs in enumerate(tables.pool.refs)],
            "tables": [{"blocks": list(t.blocks), "tokens": t.length, "left_behind": t.dropped} for t in rows],
            "free": tables.pool.free,
        }


class Prefix(Paged):
    """A batch of sequences that share their prefixes with one another, and with earlier ones in the same memory.

    A full block is a cache hit if its tokens and all tokens before it are equal: the second sequence takes the first
    one's blocks, and nothing is stored twice. As in vLLM's automatic prefix caching,
    https://docs.vllm.ai/en/latest/design/prefix_caching.html ; RadixAttention keeps a tree instead of hashes,
    https://arxiv.org/abs/2312.07104
    """

    def note(self, ids: list[list[int]]) -> None:
        tables = self.pages.tables
        if not self.rows:
            self.rows = [tables.new() for _ in ids]
        for sequence, row in zip(self.rows, ids, strict=True):
            tables.note(sequence, row)

    def picture(self) -> Picture:
        """The picture of the paged cache; `findable` are free blocks that the same prefix would hit again."""
        return {**super().picture(), "findable": self.pages.tables.pool.cached_free}
