"""Many sequences come, grow and go in one memory: what each way of giving it out wastes, and how many fit.

A seeded trace, the same for every way. At each tick a new token of every running sequence is written; who waits is let
in, in order, as soon as there is room. When a running sequence can't grow, the one that was let in last is preempted:
its memory is taken, and it waits again, first in the line, to be computed anew (as vLLM does). Slots are tokens of one
layer; waste inside a sequence's memory is `internal`, free memory that the first in the line can't use though it would
be enough is `external`. PagedAttention, figure 2: https://arxiv.org/abs/2309.06180
"""

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from kvviz.base.errors import KvvizError
from kvviz.caches.block_table import BLOCK, Blocks, FoundBlocks, OutOfBlocks
from kvviz.caches.paged import Pages
from kvviz.caches.prefix import SharedPages
from kvviz.experiments.serving.arena import Arena
from kvviz.experiments.serving.trace import Request, Trace


class Reserved:
    """A region for the longest sequence there can be, from the first token on."""

    name, title = "reserved", "Contiguous, reserved for the longest"

    def __init__(self, slots: int, longest: int) -> None:
        self.arena, self.longest = Arena(slots), longest
        self.regions: dict[int, tuple[int, int]] = {}
        self.lengths: dict[int, int] = {}
        self.moved = self.found = self.evicted = 0

    def wants(self, request: Request, tokens: int) -> int:
        """Slots in one piece that a request with so many tokens needs to be let in."""
        return self.longest

    def admit(self, request: Request, tokens: int) -> bool:
        """Let a request in with its first `tokens` tokens; False where there is no room."""
        length = self.wants(request, tokens)
        start = self.arena.take(length)
        if start is None:
            return False
        self.regions[request.number], self.lengths[request.number] = (start, length), tokens
        return True

    def grow(self, request: Request) -> bool:
        """Write the next token of a request; False where there is no room for it."""
        self.lengths[request.number] += 1
        return True

    def release(self, request: Request) -> None:
        """A request goes."""
        self.arena.give_back(*self.regions.pop(request.number))
        del self.lengths[request.number]

    @property
    def reserved(self) -> int:
        """Slots that are somebody's."""
        return sum(length for _, length in self.regions.values())

    @property
    def used(self) -> int:
        """Slots with a token in them."""
        return sum(self.lengths.values())

    def external(self, request: Request | None, tokens: int) -> int:
        """Free slots that the first in the line can't use, though together they are enough."""
        wanted = self.wants(request, tokens) if request else 0
        return self.arena.free if self.arena.largest < wanted <= self.arena.free else 0

    def picture(self) -> dict[str, Any]:
        """Every region with its owner, first slot, slots and tokens; every hole with its first slot and its slots."""
        regions = [(number, *place, self.lengths[number]) for number, place in self.regions.items()]
        regions.sort(key=lambda region: region[1])
        return {"kind": "regions", "regions": regions, "holes": self.arena.holes[:]}


class Growing(Reserved):
    """A region as long as it has to be, in the smallest hole that it fits in; who outgrows it moves to a larger one."""

    name, title = "growing", "Contiguous, grown by best fit"

    STEP = BLOCK  # slots that a region grows by, like a paged sequence's

    def wants(self, request: Request, tokens: int) -> int:
        return -(-(tokens + 1) // self.STEP) * self.STEP

    def grow(self, request: Request) -> bool:
        start, length = self.regions[request.number]
        tokens = self.lengths[request.number]
        if tokens == length and not self._lengthen(request.number, start, length, tokens):
            return False
        self.lengths[request.number] += 1
        return True

    def _lengthen(self, number: int, start: int, length: int, tokens: int) -> bool:
        if self.arena.extend(start, length, self.STEP):
            self.regions[number] = (start, length + self.STEP)
            return True
        moved = self.arena.take(length + self.STEP)
        if moved is None:
            return False
        self.arena.give_back(start, length)
        self.regions[number] = (moved, length + self.STEP)
        self.moved += tokens
        return True


class InBlocks:
    """The blocks of `paged.py`, with keys and values of one number each in them."""

    name, title = "paged", "Paged, blocks of 16"

    def __init__(self, slots: int, longest: int) -> None:
        self.pages = self._pages(slots // BLOCK)
        self.sequences: dict[int, int] = {}
        self.moved = self.found = 0

    @staticmethod
    def _pages(blocks: int) -> Pages:
        return Pages(Blocks(blocks))

    @property
    def evicted(self) -> int:
        """Blocks that could still have been found, and were overwritten."""
        return 0

    def admit(self, request: Request, tokens: int) -> bool:
        sequence = self._started(request, tokens)
        held = self.pages.tables[sequence].length
        try:
            self._append(sequence, request.ids[held:tokens])
        except OutOfBlocks:
            self.pages.release(sequence)
            return False
        self.found += held
        self.sequences[request.number] = sequence
        return True

    def _started(self, request: Request, tokens: int) -> int:
        return self.pages.new()

    def _append(self, sequence: int, ids: Sequence[int]) -> None:
        numbers = torch.tensor(ids, dtype=torch.float32)[None, :, None]  # (Hkv 1, T, D 1)
        self.pages.append(sequence, numbers, numbers)

    def grow(self, request: Request) -> bool:
        sequence = self.sequences[request.number]
        length = self.pages.tables[sequence].length
        try:
            self._append(sequence, request.ids[length : length + 1])
        except OutOfBlocks:
            return False
        return True

    def release(self, request: Request) -> None:
        self.pages.release(self.sequences.pop(request.number))

    @property
    def reserved(self) -> int:
        return self.pages.books.used * BLOCK

    @property
    def used(self) -> int:
        filled: dict[int, int] = {}
        for table in self.pages.tables.values():
            for place, block in enumerate(table.blocks):
                filled[block] = max(filled.get(block, 0), min(BLOCK, table.length - place * BLOCK))
        return sum(filled.values())

    def external(self, request: Request | None, tokens: int) -> int:
        """None ever: any free block will do."""
        return 0

    def picture(self) -> dict[str, Any]:
        """Each sequence with its owner, its blocks and its tokens; the free blocks, the next to be taken first.

        `findable` are free blocks that a like beginning would find again.
        """
        books = self.pages.books
        tables = [(number, self.pages.tables[sequence]) for number, sequence in self.sequences.items()]
        return {
            "kind": "blocks",
            "block": BLOCK,
            "tables": [(number, list(table.blocks), table.length) for number, table in tables],
            "free": [*books.free, *range(len(books.refs), books.limit or 0)],
            "findable": self._findable(),
        }

    def _findable(self) -> list[int]:
        return []


class InSharedBlocks(InBlocks):
    """The same with like beginnings kept once, and found again as long as nobody needed their blocks."""

    name, title = "prefix", "Paged, beginnings shared"

    pages: SharedPages

    @staticmethod
    def _pages(blocks: int) -> SharedPages:
        return SharedPages(FoundBlocks(blocks))

    @property
    def evicted(self) -> int:
        return self.pages.books.forgotten

    def _findable(self) -> list[int]:
        return self.pages.books.known_free

    def _started(self, request: Request, tokens: int) -> int:
        return self.pages.adopt(list(request.ids[:tokens]))[0]

    def _append(self, sequence: int, ids: Sequence[int]) -> None:
        self.pages.note(sequence, list(ids))
        super()._append(sequence, ids)


WAYS = (Reserved, Growing, InBlocks, InSharedBlocks)


class Moments:
    """Pictures of a memory, every `stride`-th tick: where there are MOST, every other goes and the stride doubles."""

    MOST = 96

    def __init__(self) -> None:
        self.stride = 1
        self.pictures: list[dict[str, Any]] = []  # of the ticks stride, 2 x stride, ...

    def take(self, tick: int, way: Any) -> None:
        """The picture of a tick (the first is 1), if it is one that is kept."""
        if tick % self.stride:
            return
        self.pictures.append(way.picture())
        if len(self.pictures) == self.MOST:
            del self.pictures[::2]
            self.stride *= 2


@dataclass
class _Run:
    """One way's passage through a trace: `line` waits, `running` are in, each with the tokens that it has."""

    way: Any
    line: deque[tuple[Request, int]] = field(default_factory=deque)
    running: list[list[Any]] = field(default_factory=list)
    preempted: int = 0
    recomputed: int = 0
    ended: int = 0
    before: tuple[int, int, int] = (0, 0, 0)

    def tick(self) -> None:
        """A token for all that run, those that end go, those that wait are let in."""
        for entry in list(self.running):
            if entry in self.running and self._make_room(entry):
                entry[1] += 1
        for entry in [entry for entry in self.running if entry[1] == len(entry[0].ids)]:
            self.way.release(entry[0])
            self.running.remove(entry)
            self.ended += 1
        while self.line and self.way.admit(*self.line[0]):
            self.running.append(list(self.line.popleft()))

    def _make_room(self, entry: list[Any]) -> bool:
        """Grow a sequence by a token, preempting the newest as long as there is no room; False where it went itself."""
        while not self.way.grow(entry[0]):
            last = self.running.pop()
            self.way.release(last[0])
            self.preempted += 1
            self.recomputed += last[1]
            self.line.appendleft((last[0], last[1]))
            if last is entry:
                return False
        return True

    def row(self, tick: int, slots: int) -> dict[str, int]:
        """The memory as it is: slots used, wasted inside and between, free; who runs and who waits.

        And what happened in this tick: sequences preempted, blocks evicted, tokens moved.
        """
        used, reserved = self.way.used, self.way.reserved
        external = self.way.external(*self.line[0]) if self.line else 0
        now = (self.preempted, self.way.evicted, self.way.moved)
        preempted, evicted, moved = (new - old for new, old in zip(now, self.before, strict=True))
        self.before = now
        return {
            "tick": tick,
            "running": len(self.running),
            "waiting": len(self.line),
            "used": used,
            "internal": reserved - used,
            "external": external,
            "free": slots - reserved - external,
            "preempted": preempted,
            "evicted": evicted,
            "moved": moved,
        }


def compare_ways(trace: Trace, *, slots: int, ways: Sequence[type] = WAYS) -> dict[str, Any]:
    """The same trace through each way of giving out `slots` tokens of memory: plain data, a row a tick.

    The means are over the ticks at which somebody waits, None where nobody ever did.
    Raises KvvizError where the memory is too small for the longest sequence.
    """
    if slots < trace.longest + BLOCK:
        raise KvvizError(f"{slots:,} slots are too few: the longest sequence has {trace.longest:,} tokens, and a block")
    requests = trace.draw()
    return {
        "trace": asdict(trace),
        "slots": slots,
        "ways": [_passed(way(slots, trace.longest), requests, slots) for way in ways],
    }


def _passed(way: Any, requests: list[Request], slots: int) -> dict[str, Any]:
    run, coming, rows, moments = _Run(way), deque(requests), [], Moments()
    while run.ended < len(requests):
        while coming and coming[0].arrives <= len(rows):
            request = coming.popleft()
            run.line.append((request, request.prompt))
        run.tick()
        rows.append(run.row(len(rows) + 1, slots))
        moments.take(len(rows), way)
    busy = [row for row in rows if row["waiting"]]  # what a way wastes shows while somebody has to wait

    def mean(name: str, of: int = 1) -> float | None:
        return statistics.fmean(row[name] for row in busy) / of if busy else None

    return {
        "name": way.name,
        "title": way.title,
        "ticks": rows,
        "stride": moments.stride,
        "pictures": moments.pictures,
        "most_running": max(row["running"] for row in rows),
        "mean_running_while_some_wait": mean("running"),
        "used_share_while_some_wait": mean("used", slots),
        "internal_share_while_some_wait": mean("internal", slots),
        "external_share_while_some_wait": mean("external", slots),
        "preempted": run.preempted,
        "recomputed_tokens": run.recomputed,
        "moved_tokens": way.moved,
        "found_tokens": way.found,
        "evicted_blocks": way.evicted,
        "ended_at_tick": len(rows),
    }
