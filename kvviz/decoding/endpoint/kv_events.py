"""What an engine's KV cache events tell: the blocks that lie in its prefix cache, by hash, and who follows whom.

vLLM publishes a batch of events after each step of its scheduler; `kv_events.toml` has their fields. This module reads
decoded messages and keeps the map; `subscriber.py` is the network. The tokens of a block are counted and not kept: they
are what somebody asked the server.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypedDict

from kvviz.base.checks import Absent, check_of, list_of, number, text, whole

MOST_BLOCKS = 200_000  # that are kept; blocks beyond are counted as untracked
MOST_DRAWN = 1_000
MOST_POINTS = 300  # of the curve
MOST_UNKNOWN = 8  # names
MOST_NAMES = 8  # of topics, media and the like
MOST_RANKS = 10**6  # of data-parallel engines; a higher number is an error
CALLED = {"BlockStored": "stored", "BlockRemoved": "removed", "AllBlocksCleared": "cleared"}


Count = Annotated[int, whole()]
Second = Annotated[float, number()]
Said = Annotated[str, text(100)]
Some = Annotated[list[str], list_of(text(100), 40)]


class Chain(TypedDict):
    """Blocks of which each is the only one that follows the one before it, and where the first of them stands.

    `depth` counts the blocks before it; `parent` is the hash of the one before it, null at the start of a prompt, and
    `seen` says whether that one was told of. The lists have an entry a block: when it was stored and, if it was,
    removed.
    """

    depth: Count
    parent: Said | None
    seen: bool
    medium: Said | None
    group: Annotated[int, number()] | None
    hashes: Annotated[list[str], list_of(text(100), MOST_DRAWN)]
    tokens: Annotated[list[int], list_of(whole(), MOST_DRAWN)]
    stored_s: Annotated[list[float], list_of(number(), MOST_DRAWN)]
    removed_s: Annotated[list[float | None], list_of(check_of(Second | None), MOST_DRAWN)]


class Medium(TypedDict):
    """Where blocks lie, such as GPU or CPU, and how many do; null where the engine does not say."""

    medium: Said | None
    blocks: Count


class Told(TypedDict):
    """What the events told (docs/json.md); seconds count from the first batch, by the engine's clock.

    But `lost_at_s` counts from the subscription, by the clock here.
    """

    form: Annotated[str, text(20)] | None
    topics: Some
    ranks: list[Count]
    events: dict[str, Count]
    batches: Count
    first_sequence: Count | None
    last_sequence: Count | None
    missed: Count
    replayed: Count
    replays: bool | None
    restarts: Count
    unreadable: Count
    unknown: Some
    lost_at_s: Annotated[float, number(0)] | None
    block_tokens: list[Count]
    blocks: Count
    tokens: Count
    copies: Annotated[Count, Absent(0)]
    media: Annotated[list[Medium], list_of(check_of(Medium), MOST_NAMES)]
    removed: Count
    without_parent: Count
    never_stored: Count
    untracked: Count
    curve_s: list[Second]
    curve_blocks: list[Count]
    chains: Annotated[list[Chain], list_of(check_of(Chain), MOST_DRAWN)]
    not_drawn: Count


@dataclass
class Block:
    """A block of the cache. Seconds count from the first batch, by the engine's clock.

    vLLM stores a block anew, under the same hash, when a request computes tokens that lie in the cache already, such as
    the answer to a prompt that was asked before. It removes each copy by itself, so the block is gone with the last.
    """

    name: str
    parent: "Key | None"
    tokens: int
    stored_s: float
    removed_s: float | None = None
    copies: int = 1


Key = tuple[str | None, int | None, int | bytes]  # medium, group of layers, hash


@dataclass(frozen=True)
class Batch:
    """One decoded message: the engine's clock in seconds, and its events, each a type and its fields."""

    ts: float
    events: list[tuple[str, dict[str, Any]]]
    rank: int | None
    forms: frozenset[str]
    unknown: frozenset[str]


@cache
def layouts() -> Mapping[str, Any]:
    """Return the table of fields."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def read_batch(data: object) -> Batch:
    """Read a decoded message, whose batch and events are arrays or maps. Raises ValueError for anything else."""
    fields, unknown = _named(data, layouts()["batch"], "batch")
    events, forms, ts, rank = [], set[str](), fields.get("ts"), fields.get("data_parallel_rank")
    if (
        ts is None
        or not _is_number(ts)
        or not isinstance(fields.get("events"), list)
        or not (rank is None or (_is_whole(rank) and 0 <= rank < MOST_RANKS))
    ):
        raise ValueError("no batch of events")
    for event in fields["events"]:
        forms.add("maps" if isinstance(event, Mapping) else "arrays")
        kind, rest = _tagged(event)
        if kind not in layouts()["fields"]:
            unknown.add(f"event {kind}")
            continue
        own, more = _named(rest, layouts()["fields"][kind], kind)
        events.append((kind, _checked(kind, own)))
        unknown |= more
    return Batch(float(ts), events, rank, frozenset(forms), frozenset(unknown))


def _tagged(event: object) -> tuple[str, object]:
    """Split an event into its type and the rest."""
    if isinstance(event, Mapping):
        kind: object = event.get("type")
        rest: object = {name: value for name, value in event.items() if name != "type"}
    else:
        kind, rest = (event[0], event[1:]) if isinstance(event, list) and event else (None, None)
    if not isinstance(kind, str):
        raise ValueError("an event without a type")
    return kind[:60], rest


def _named(data: object, names: Sequence[str], what: str) -> tuple[dict[str, Any], set[str]]:
    """Return the fields of an array or a map by their names, and those that the table does not have."""
    if isinstance(data, list):
        unknown = {
            f"{what}, field {place + 1}" for place in range(len(names), min(len(data), len(names) + MOST_UNKNOWN))
        }
        return dict(zip(names, data, strict=False)), unknown
    if not isinstance(data, Mapping):
        raise ValueError(f"{what} is neither an array nor a map")
    unknown = {f"{what}.{str(name)[:60]}" for name in list(data)[: len(names) + MOST_UNKNOWN] if name not in names}
    return {name: data[name] for name in names if name in data}, unknown


def _checked(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return an event's fields if they are what a map of blocks needs. Raises ValueError."""
    if kind == "AllBlocksCleared":
        return fields
    hashes, medium, group = fields.get("block_hashes"), fields.get("medium"), fields.get("group_idx")
    good = isinstance(hashes, list) and all(map(_is_hash, hashes))
    good = good and (medium is None or isinstance(medium, str)) and (group is None or _is_whole(group))
    if kind == "BlockStored":
        parent, size = fields.get("parent_block_hash"), fields.get("block_size")
        good = good and (parent is None or _is_hash(parent)) and _is_whole(size) and 0 < int(size or 0) <= 10**6
    if not good:
        raise ValueError(f"{kind} without the fields of one")
    return {**fields, "medium": medium[:40] if medium else None}


def _is_hash(value: object) -> bool:
    return _is_whole(value) or (isinstance(value, bytes) and 0 < len(value) <= 64)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool) and abs(value) < 1e15


def _name(found: int | bytes) -> str:
    """Write a hash as its first 64 bits; the newer ones are bytes, of sha256, the older ones whole numbers."""
    return found.hex()[:16] if isinstance(found, bytes) else f"{found % 2**64:016x}"


@dataclass
class BlockMap:
    """The blocks of a cache as the events so far have told, and what is wrong with the events."""

    blocks: dict[Key, Block] = field(default_factory=dict)
    there: dict[str | None, int] = field(default_factory=dict)  # blocks that lie in each medium
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CALLED.values(), 0))
    curve: list[tuple[float, int]] = field(default_factory=list)
    unknown: set[str] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)
    sizes: set[int] = field(default_factory=set)
    forms: set[str] = field(default_factory=set)
    first: int | None = None
    last: int | None = None
    batches: int = 0
    missed: int = 0
    replayed: int = 0
    replays: bool | None = None  # whether the replay socket answers; None for an engine without one
    restarts: int = 0
    unreadable: int = 0
    never_stored: int = 0
    untracked: int = 0
    lost_at_s: float | None = None
    _begun: float | None = None
    _latest: float = 0.0
    _removed: int = 0

    def gap(self, sequence: int) -> range:
        """Return the sequence numbers that are missing before this one."""
        return range(0 if self.last is None else self.last + 1, sequence)

    def apply(self, sequence: int, batch: Batch, *, replayed: bool = False) -> None:
        """Take in a batch, unless it was taken in before; a lower number at a later time: the engine has begun anew."""
        if self.last is not None and sequence <= self.last:
            if batch.ts <= self._latest:
                return
            self.restarts += 1
            self._clear(batch)
        elif self.first is not None:
            self.missed += len(self.gap(sequence))
        self.first = sequence if self.first is None else self.first
        self.last, self._latest = sequence, batch.ts
        self.batches += 1
        self.replayed += replayed
        self.unknown = set(sorted(self.unknown | batch.unknown)[:MOST_UNKNOWN])
        self.forms |= batch.forms
        if batch.rank is not None and len(self.ranks) < MOST_NAMES:
            self.ranks.add(batch.rank)
        for kind, fields in batch.events:
            self.counts[CALLED[kind]] += 1
            {"stored": self._store, "removed": self._remove, "cleared": self._clear}[CALLED[kind]](batch, fields)
        self.curve.append((round(self._at(batch), 6), sum(self.there.values())))
        if len(self.curve) > 4 * MOST_POINTS:
            self.curve = self.curve[::2]

    def _at(self, batch: Batch) -> float:
        if self._begun is None:
            self._begun = batch.ts
        return batch.ts - self._begun

    def _store(self, batch: Batch, fields: dict[str, Any]) -> None:
        medium, group, parent = fields["medium"], fields.get("group_idx"), fields.get("parent_block_hash")
        before: Key | None = None if parent is None else (medium, group, parent)
        self.sizes.add(fields["block_size"])
        for found in fields["block_hashes"]:
            key: Key = (medium, group, found)
            known = self.blocks.get(key)
            if known is None and len(self.blocks) >= MOST_BLOCKS:
                self._forget_removed()
            if known is None and len(self.blocks) >= MOST_BLOCKS:
                self.untracked += 1
            elif known is None or known.removed_s is not None:
                self._removed -= known is not None
                self.there[medium] = self.there.get(medium, 0) + 1
                self.blocks[key] = Block(_name(found), before, fields["block_size"], round(self._at(batch), 6))
            else:
                known.copies += 1
            before = key

    def _forget_removed(self) -> None:
        """Make room by forgetting the blocks that the engine has removed from its cache."""
        self.blocks = {key: block for key, block in self.blocks.items() if block.removed_s is None}

    def _remove(self, batch: Batch, fields: dict[str, Any]) -> None:
        for found in fields["block_hashes"]:
            block = self.blocks.get((fields["medium"], fields.get("group_idx"), found))
            if block is None or block.removed_s is not None:
                self.never_stored += 1
            elif block.copies > 1:
                block.copies -= 1
            else:
                self._take(block, fields["medium"], batch)

    def _clear(self, batch: Batch, fields: dict[str, Any] | None = None) -> None:
        for (medium, _, _), block in self.blocks.items():
            if block.removed_s is None:
                self._take(block, medium, batch)

    def _take(self, block: Block, medium: str | None, batch: Batch) -> None:
        block.removed_s = round(self._at(batch), 6)
        self._removed += 1
        self.there[medium] -= 1

    def told(self) -> Told:
        """Return all of it as JSON values."""
        drawn = list(self._chains())
        media: list[Medium] = [{"medium": name, "blocks": count} for name, count in self.there.items() if count]
        lying = [block for block in self.blocks.values() if block.removed_s is None]
        known = self.blocks
        step = max(1, len(self.curve) // MOST_POINTS)
        curve = [*self.curve[:-1:step], *self.curve[-1:]]
        return {
            "form": "both" if len(self.forms) > 1 else next(iter(self.forms), None),
            "topics": sorted(self.topics),
            "ranks": sorted(self.ranks),
            "events": dict(self.counts),
            "batches": self.batches,
            "first_sequence": self.first,
            "last_sequence": self.last,
            "missed": self.missed,
            "replayed": self.replayed,
            "replays": self.replays,
            "restarts": self.restarts,
            "unreadable": self.unreadable,
            "unknown": sorted(self.unknown),
            "lost_at_s": self.lost_at_s,
            "block_tokens": sorted(self.sizes)[:MOST_NAMES],
            "blocks": len(lying),
            "tokens": sum(block.tokens for block in lying),
            "copies": sum(block.copies - 1 for block in lying),
            "media": media[:MOST_NAMES],
            "removed": self._removed,
            "without_parent": sum(block.parent is not None and block.parent not in known for block in lying),
            "never_stored": self.never_stored,
            "untracked": self.untracked,
            "curve_s": [at for at, _ in curve],
            "curve_blocks": [blocks for _, blocks in curve],
            "chains": drawn,
            "not_drawn": len(self.blocks) - sum(len(chain["hashes"]) for chain in drawn),
        }

    def _chains(self) -> Iterator[Chain]:
        """Cut the trees into chains, a tree after another, until MOST_DRAWN blocks are drawn."""
        after = dict[Key, list[Key]]()
        roots = list[Key]()
        for key, block in self.blocks.items():
            if block.parent is None or block.parent not in self.blocks:
                roots.append(key)
            else:
                after.setdefault(block.parent, []).append(key)
        left, open_ends = MOST_DRAWN, [(key, 0) for key in reversed(roots)]
        while open_ends and left:
            key, depth = open_ends.pop()
            first, blocks, begun = self.blocks[key], list[Block](), depth
            while left:
                blocks.append(self.blocks[key])
                left, depth = left - 1, depth + 1
                following = after.get(key, [])
                if len(following) != 1:
                    open_ends += [(one, depth) for one in reversed(following)]
                    break
                key = following[0]
            parent = first.parent
            yield {
                "depth": begun,
                "parent": None if parent is None else _name(parent[2]),
                "seen": parent is None or parent in self.blocks,
                "medium": key[0],
                "group": key[1],
                "hashes": [block.name for block in blocks],
                "tokens": [block.tokens for block in blocks],
                "stored_s": [block.stored_s for block in blocks],
                "removed_s": [block.removed_s for block in blocks],
            }
