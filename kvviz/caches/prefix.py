"""The paged cache with shared prefixes: a full block is a cache hit if its tokens and all tokens before it are equal.

Two sequences with the same prefix have the same keys and values there, so the second takes the first one's blocks:
nothing is stored twice, and a caller that knows the prompt beforehand (`start_with_prefix`) need not even compute them.
As in vLLM's automatic prefix caching, https://docs.vllm.ai/en/latest/design/prefix_caching.html ; RadixAttention keeps
a tree instead of hashes, https://arxiv.org/abs/2312.07104
"""

from kvviz.caches.base import Picture
from kvviz.caches.paged import Paged


class Prefix(Paged):
    """A batch of sequences that share their prefixes with one another, and with earlier ones in the same memory."""

    def note(self, ids: list[list[int]]) -> None:
        tables = self.pages.tables
        if not self.rows:
            self.rows = [tables.new() for _ in ids]
        for sequence, row in zip(self.rows, ids, strict=True):
            tables.note(sequence, row)

    def start_with_prefix(self, ids: list[int]) -> int:
        """Start one sequence with the cached tokens of its prompt; return how many need not be computed."""
        sequence, tokens = self.pages.tables.new_with_prefix(ids)
        self.rows, self.seen, self.held = [sequence], tokens, tokens
        return tokens

    def picture(self) -> Picture:
        """The picture of the paged cache; `findable` are free blocks that the same prefix would hit again."""
        return {**super().picture(), "findable": self.pages.tables.pool.cached_free}
