"""The paged cache with shared beginnings: a full block is found again by its tokens and all before them.

Two sequences that begin alike have the same keys and values there, so the second takes the first one's blocks: nothing
is stored twice, and whoever knows it beforehand (`adopt`) need not even compute them. As in vLLM's automatic prefix
caching, https://docs.vllm.ai/en/latest/design/prefix_caching.html ; RadixAttention keeps a tree instead of digests,
https://arxiv.org/abs/2312.07104
"""

from typing import Any

from kvviz.caches.block_table import FoundBlocks, digest_of
from kvviz.caches.paged import BLOCK, Paged, Pages, Table


class SharedPages(Pages):
    """Pages whose full blocks are known by content, as far as `note` has told which tokens come."""

    def __init__(self, books: FoundBlocks | None = None, block: int = BLOCK) -> None:
        super().__init__(FoundBlocks() if books is None else books, block)
        self.books: FoundBlocks

    def note(self, sequence: int, ids: list[int]) -> None:
        """The ids of the tokens that the next append of a sequence brings."""
        self.tables[sequence].ids += ids

    def _enter(self, table: Table, slot: int, count: int) -> bool:
        """A whole block whose content is there already is taken, not written."""
        digest = self._next_digest(table) if slot == 0 and count == self.block else None
        block = self.books.find(digest) if digest else None
        if block is not None:
            table.blocks.append(block)
            return False
        super()._enter(table, slot, count)
        self.books.forget(table.blocks[-1])  # after a crop it may have been full and known
        return True

    def _entered(self, table: Table) -> None:
        """A block that has become full is known from now on; where another has its content, that one is taken."""
        digest = self._next_digest(table) if table.length % self.block == 0 else None
        if digest is None:
            return
        own = table.blocks[-1]
        table.digests.append(digest)
        same = self.books.find(digest)
        if same is None:
            self.books.know(own, digest)
        else:
            self.books.drop(own)
            table.blocks[-1] = same

    def _next_digest(self, table: Table) -> bytes | None:
        """The digest of the first block of a table that has none yet; None where its tokens were not all told."""
        start = len(table.digests) * self.block
        tokens = table.ids[start : start + self.block]
        if len(tokens) < self.block or start + self.block < table.length:
            return None
        return digest_of(table.digests[-1] if table.digests else b"", tokens)

    def adopt(self, ids: list[int]) -> tuple[int, int]:
        """A new sequence that starts with the known blocks of `ids`: its number, and the tokens it has then.

        At least one token is left to be computed, since its logits are wanted.
        """
        table = Table(ids=[])
        for start in range(0, len(ids) - self.block, self.block):
            tokens = ids[start : start + self.block]
            digest = digest_of(table.digests[-1] if table.digests else b"", tokens)
            block = self.books.find(digest)
            if block is None:
                break
            table.blocks.append(block)
            table.digests.append(digest)
            table.ids += tokens
            table.length += self.block
        return self.new(table), table.length


class Prefix(Paged):
    """A batch of sequences that share their beginnings with one another, and with those that were there before."""

    pages: SharedPages

    @staticmethod
    def new_pages() -> SharedPages:
        return SharedPages()

    def note(self, ids: list[list[int]]) -> None:
        if not self.rows:
            self.rows = [self.pages.new() for _ in ids]
        for sequence, row in zip(self.rows, ids, strict=True):
            self.pages.note(sequence, row)

    def adopt(self, ids: list[int]) -> int:
        """Start with one sequence whose first tokens are there already: how many, each of them need not be computed."""
        sequence, tokens = self.pages.adopt(ids)
        self.rows, self.seen, self.held = [sequence], tokens, tokens
        return tokens

    def picture(self) -> dict[str, Any]:
        """As of the paged cache; `findable` are free blocks that a like beginning would find again."""
        return {**super().picture(), "findable": self.pages.books.known_free}
