"""Policies for giving one memory out to many sequences: contiguous regions, or blocks. They hold no tensors.

Slots are tokens of one layer. PagedAttention, figure 2: https://arxiv.org/abs/2309.06180
"""

from abc import ABC, abstractmethod
from typing import ClassVar

from kvviz.caches.block_table import BLOCK, BlockPool, BlockTables, OutOfBlocks
from kvviz.experiments.serving.spec import Request


class Policy(ABC):
    """A memory of `slots` slots, given out by one rule; `longest` is the most tokens that a request can have."""

    name: ClassVar[str]
    title: ClassVar[str]

    def __init__(self, slots: int, longest: int) -> None:
        self.slots, self.longest = slots, longest
        self.moved = 0  # tokens that were copied to another place
        self.hit_tokens = 0  # tokens that were cache hits, so that nobody computes them again

    @abstractmethod
    def admit(self, request: Request, tokens: int) -> bool:
        """Give a request memory for its first `tokens` tokens; False if there is not enough."""

    @abstractmethod
    def grow(self, request: Request) -> bool:
        """Write the next token of a request; False if there is no slot for it."""

    @abstractmethod
    def release(self, request: Request) -> None:
        """Take a request's memory back."""

    @property
    @abstractmethod
    def reserved(self) -> int:
        """Slots that are given out."""

    @property
    @abstractmethod
    def used(self) -> int:
        """Slots that hold a token."""

    @property
    def evicted(self) -> int:
        """Cached blocks that were overwritten."""
        return 0

    def external(self, request: Request, tokens: int) -> int:
        """Free slots that a waiting request can't use, though together they are enough."""
        return 0

    @abstractmethod
    def picture(self) -> dict[str, object]:
        """The memory as it is, as JSON values."""


class Reserved(Policy):
    """A region for the longest possible sequence, from the first token on."""

    name, title = "reserved", "Preallocated, for the longest"

    def __init__(self, slots: int, longest: int) -> None:
        super().__init__(slots, longest)
        self.regions: dict[int, tuple[int, int]] = {}  # first slot and slots, by request
        self.lengths: dict[int, int] = {}

    @property
    def holes(self) -> list[tuple[int, int]]:
        """The free regions, in order of their first slots."""
        found, end = [], 0
        for start, length in [*sorted(self.regions.values()), (self.slots, 0)]:
            if start > end:
                found.append((end, start - end))
            end = start + length
        return found

    def find(self, length: int) -> int | None:
        """The first slot of the smallest hole that is large enough (best fit); None if no hole is."""
        fitting = [(size, start) for start, size in self.holes if size >= length]
        return min(fitting)[1] if fitting else None

    def region_for(self, tokens: int) -> int:
        """Contiguous slots that a request with so many tokens needs."""
        return self.longest

    def admit(self, request: Request, tokens: int) -> bool:
        length = self.region_for(tokens)
        start = self.find(length)
        if start is None:
            return False
        self.regions[request.number], self.lengths[request.number] = (start, length), tokens
        return True

    def grow(self, request: Request) -> bool:
        self.lengths[request.number] += 1
        return True

    def release(self, request: Request) -> None:
        del self.regions[request.number], self.lengths[request.number]

    @property
    def reserved(self) -> int:
        return sum(length for _, length in self.regions.values())

    @property
    def used(self) -> int:
        return sum(self.lengths.values())

    def external(self, request: Request, tokens: int) -> int:
        sizes = [length for _, length in self.holes]
        return sum(sizes) if max(sizes, default=0) < self.region_for(tokens) <= sum(sizes) else 0

    def picture(self) -> dict[str, object]:
        """Every region with its request, first slot, slots and tokens; every hole with its first slot and its slots."""
        regions = [(number, *place, self.lengths[number]) for number, place in self.regions.items()]
        regions.sort(key=lambda region: region[1])
        return {"kind": "regions", "regions": regions, "holes": self.holes}


class Growing(Reserved):
    """A region as long as needed, in the smallest hole that is large enough; a sequence that outgrows it moves."""

    name, title = "growing", "Contiguous, grown by best fit"

    STEP = BLOCK  # slots that a region grows by, like a paged sequence's

    def region_for(self, tokens: int) -> int:
        return -(-(tokens + 1) // self.STEP) * self.STEP

    def grow(self, request: Request) -> bool:
        full = self.lengths[request.number] == self.regions[request.number][1]
        return (not full or self._lengthen(request.number)) and super().grow(request)

    def _lengthen(self, number: int) -> bool:
        """Make a region longer, where it is or in another place."""
        start, length = self.regions[number]
        if dict(self.holes).get(start + length, 0) < self.STEP:
            moved = self.find(length + self.STEP)
            if moved is None:
                return False
            self.moved += length
            start = moved
        self.regions[number] = (start, length + self.STEP)
        return True


class Paged(Policy):
    """The block tables of the paged cache. There is no external waste, since any free block will do."""

    name, title = "paged", "Paged, blocks of 16"

    def __init__(self, slots: int, longest: int) -> None:
        super().__init__(slots, longest)
        self.tables = BlockTables(BlockPool(slots // BLOCK))
        self.sequences: dict[int, int] = {}

    def admit(self, request: Request, tokens: int) -> bool:
        sequence, cached = self._start(request.ids[:tokens])
        if not self._append(sequence, request.ids[cached:tokens]):
            self.tables.release(sequence)
            return False
        self.hit_tokens += cached
        self.sequences[request.number] = sequence
        return True

    def _start(self, ids: tuple[int, ...]) -> tuple[int, int]:
        """A new sequence for a prompt, and how many of its tokens it has already."""
        return self.tables.new(), 0

    def _append(self, sequence: int, ids: tuple[int, ...]) -> bool:
        try:
            for _ in self.tables.append(sequence, len(ids)):
                pass  # a cache would write its tensors here
        except OutOfBlocks:
            return False
        return True

    def grow(self, request: Request) -> bool:
        sequence = self.sequences[request.number]
        length = self.tables.sequences[sequence].length
        return self._append(sequence, request.ids[length : length + 1])

    def release(self, request: Request) -> None:
        self.tables.release(self.sequences.pop(request.number))

    @property
    def reserved(self) -> int:
        return self.tables.pool.used * BLOCK

    @property
    def used(self) -> int:
        return sum(self.tables.filled(self.sequences.values()).values())

    @property
    def evicted(self) -> int:
        return self.tables.pool.evictions

    def picture(self) -> dict[str, object]:
        """Each sequence with its request, its blocks and its tokens; the free blocks, the next to be taken first.

        `findable` are free blocks that the same prefix would hit again.
        """
        pool, tables = self.tables.pool, self.tables.sequences
        rows = [(number, tables[sequence]) for number, sequence in self.sequences.items()]
        return {
            "kind": "blocks",
            "block": BLOCK,
            "tables": [(number, list(table.blocks), table.length) for number, table in rows],
            "free": [*pool.free, *range(len(pool.refs), self.slots // BLOCK)],
            "findable": pool.cached_free,
        }


class Prefix(Paged):
    """The same with equal prefixes kept once, and cached until their blocks are needed."""

    name, title = "prefix", "Paged, prefixes shared"

    def _start(self, ids: tuple[int, ...]) -> tuple[int, int]:
        return self.tables.new_with_prefix(list(ids))

    def _append(self, sequence: int, ids: tuple[int, ...]) -> bool:
        self.tables.note(sequence, list(ids))
        return super()._append(sequence, ids)


class Batched(Reserved):
    """Regions as `Reserved`, but nobody joins a batch that has begun; all others may join after any step.

    Continuous batching against such static batches: https://www.usenix.org/conference/osdi22/presentation/yu
    """

    name, title = "batched", "Static batches, reserved for the longest"

    def __init__(self, slots: int, longest: int) -> None:
        super().__init__(slots, longest)
        self.begun = False

    def admit(self, request: Request, tokens: int) -> bool:
        return not self.begun and super().admit(request, tokens)

    def grow(self, request: Request) -> bool:
        self.begun = True
        return super().grow(request)

    def release(self, request: Request) -> None:
        super().release(request)
        self.begun = bool(self.regions)


POLICIES: tuple[type[Policy], ...] = (Reserved, Growing, Paged, Prefix, Batched)
