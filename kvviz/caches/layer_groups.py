"""One block table for all layers with the same window: a step's look-ups don't grow with the number of layers.

Engines keep their tables so: https://docs.vllm.ai/en/latest/design/hybrid_kv_cache_manager.html . No tensor here.
"""

from collections.abc import Iterable

from kvviz.caches.block_table import BlockPool, BlockTables, Eviction, Write
from kvviz.memory.engine_views import BLOCK

Window = int | None  # how many tokens back the layers of a group look; None for all


class LayerGroups:
    """The sequences of a model in a memory of `blocks` blocks for each group of layers; a sequence has one number.

    With `share`, full blocks are kept once: sequences that begin alike share them, and later ones can hit them.
    """

    def __init__(
        self, windows: Iterable[Window], blocks: int, block: int = BLOCK, share: bool = True, evict: Eviction = "lru"
    ) -> None:
        self.tables = {window: BlockTables(BlockPool(blocks, evict), block) for window in windows}
        self.blocks, self.block, self.share = blocks, block, share

    @property
    def widest(self) -> BlockTables:
        """The tables of the layers that look back furthest."""
        return self.tables[None if None in self.tables else max(filter(None, self.tables))]

    @property
    def free(self) -> int:
        """Blocks that every group can still take."""
        return min(self.blocks - tables.pool.used for tables in self.tables.values())

    def start(self, ids: list[int]) -> tuple[int, int]:
        """Start a sequence; return its number and how many tokens of its prompt `ids` are cache hits in every group."""
        started = [tables.new_with_prefix(ids if self.share else []) for tables in self.tables.values()]
        sequence, hits = started[0][0], min(hits for _, hits in started)
        for tables, (_, own) in zip(self.tables.values(), started, strict=True):
            tables.crop(sequence, own - hits)
        return sequence, hits

    def needed(self, sequence: int, tokens: int) -> int:
        """Blocks that a sequence takes at most for so many more tokens."""
        length = next(iter(self.tables.values())).sequences[sequence].length
        return (length + tokens - 1) // self.block - (length - 1) // self.block

    def append(self, sequence: int, ids: list[int]) -> dict[Window, list[Write]]:
        """Add tokens to a sequence; return what has to be written in each group, before anything is read.

        Blocks that lie before the window of the first new token are given back first. Raises OutOfBlocks.
        """
        written = {}
        for window, tables in self.tables.items():
            if window is not None:
                tables.drop_front(sequence, tables.sequences[sequence].length - window + 1)
            if self.share:
                tables.note(sequence, ids)
            written[window] = list(tables.append(sequence, len(ids)))
        return written

    def forget(self) -> None:
        """Forget every prefix that no sequence has: nothing of it is a hit any more."""
        for tables in self.tables.values():
            for block in tables.pool.cached_free:
                tables.pool.forget(block)

    def release(self, sequence: int) -> None:
        """End a sequence: each of its blocks loses an owner."""
        for tables in self.tables.values():
            tables.release(sequence)
