"""Forwards on a device's roofline: FLOPs per byte, the roof, what a forward reaches of it and what bounds it.

Standard library only; `kvviz.experiments.roofline.run` measures. A roof is as high as the products can be fed:
min(F, B x intensity), with F (FLOP/s) of the fastest matrix product and B (B/s) of a plain read.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.base.precision import precision
from kvviz.cost.blocks import Attention, Forward
from kvviz.cost.ceilings import Ceilings
from kvviz.cost.flops import cached_step, moved, prefill, total_flops
from kvviz.cost.shape import Shape, read_shape
from kvviz.models.catalog.rows import Accelerator

PREFILL, DECODE = "prefill", "decode"
MOST_BATCH = 2**20
WARMUP = 3  # untimed steps, or prefills, before those that are timed


@dataclass(frozen=True)
class Roof:
    """Two ceilings: B/s of reading, FLOP/s of computing."""

    read: float
    flops: float

    @property
    def ridge(self) -> float:
        """FLOP/B from which on arithmetic is the lower ceiling."""
        return self.flops / self.read

    def at(self, intensity: float) -> float:
        """The most FLOP/s at so many FLOPs per byte."""
        return min(self.flops, self.read * intensity)


def roof_of(found: Ceilings, dtype: str) -> Roof:
    """The roof that a device was measured to have. Raises KvvizError for a dtype that it was not measured in."""
    if dtype not in found.matrix_rate:
        known = ", ".join(found.matrix_rate) or "none"
        raise KvvizError(f"no matrix product in {dtype} was measured on this device; measured are {known}")
    return Roof(found.read_bandwidth, found.matrix_rate[dtype])


def row_roof(found: Ceilings, dtype: str) -> Roof:
    """The same with what the library's one-row product reads; the plain read where that was not measured."""
    roof = roof_of(found, dtype)
    return Roof(found.row_product.get(dtype, roof.read), roof.flops)


def advertised(row: Accelerator, dtype: str) -> Roof | None:
    """An accelerator's roof by its data sheet; None where that does not tell of the dtype."""
    flops = row.flops_per_s.get(dtype)
    return Roof(row.bandwidth_bytes_per_s, flops) if flops and row.bandwidth_bytes_per_s else None


def countable(config: Mapping[str, Any] | None, name: str = "") -> Shape:
    """The shape of a model whose forwards can be timed and counted. Raises KvvizError for others."""
    shape = read_shape(config or {}, name=name)
    if shape.spec.crossing:
        raise KvvizError(f"{name or 'this model'} reads its text with an encoder; the roofline is of decoders alone")
    return shape


@dataclass(frozen=True)
class Place:
    """One forward of the ladder: a prefill of `tokens`, or the decode step that makes the context `tokens` long."""

    phase: str
    tokens: int
    batch: int = 1

    def forward(self, shape: Shape) -> Forward:
        """As the cost model knows it."""
        return (prefill if self.phase == PREFILL else cached_step)(shape, self.tokens, self.batch)


@dataclass(frozen=True)
class Work:
    """What a forward does and moves: FLOPs, and bytes of weights, of cache (read and written), of activations.

    Attention's scores are not among the activations: a fused kernel keeps them on the chip. `copied`, what a cache
    that grows by concatenation moves on top, is one engine's way and not in the sum.
    """

    flops: int
    weights: int
    cache: int
    activations: int
    copied: int

    @property
    def bytes(self) -> int:
        """What has to be moved: weights, cache, activations."""
        return self.weights + self.cache + self.activations

    @property
    def intensity(self) -> float:
        """FLOPs per byte."""
        return self.flops / self.bytes

    def least(self, roof: Roof) -> float:
        """Seconds under a roof: reading or computing, whichever takes longer."""
        return max(self.bytes / roof.read, self.flops / roof.flops)


def work_of(shape: Shape, place: Place, dtype: str) -> Work:
    """A forward's work by the cost model, every byte counted as often as it has to come from memory: once."""
    forward = place.forward(shape)
    found = moved(shape, forward, dtype)
    kinds = ((block, count) for block, count in shape.counts.items() if isinstance(block, Attention))
    scores = sum(2 * count * forward.batch * b.heads * forward.new * b.keys(forward) for b, count in kinds)
    return Work(
        flops=total_flops(shape, forward),
        weights=found.weights,
        cache=found.cache_read + found.cache_written,
        activations=found.activations - scores * precision(dtype).state_bytes,
        copied=found.cache_copied,
    )


def repeats(place: Place, least: float) -> int:
    """How often a forward is timed, by the least it can take (seconds); odd, so that one lies in the middle."""
    if place.phase == DECODE:
        return 15 if least < 0.02 else 5
    return 9 if least < 0.02 else 5 if least < 0.2 else 3


def point(shape: Shape, place: Place, dtype: str, timed: tuple[float, float, float], count: int) -> dict[str, Any]:
    """A forward as JSON values: its work and its seconds (quartiles and median of `count` repeats)."""
    work, (low, middle, high) = work_of(shape, place, dtype), timed
    return {
        "phase": place.phase,
        "tokens": place.tokens,
        "batch": place.batch,
        "flops": work.flops,
        "bytes": work.bytes,
        "weight_bytes": work.weights,
        "cache_bytes": work.cache,
        "activation_bytes": work.activations,
        "copied_bytes": work.copied,
        "intensity": work.intensity,
        "repeats": count,
        "s": middle,
        "s_q1": low,
        "s_q3": high,
        "flops_per_s": work.flops / middle,
        "tokens_per_s": place.batch * (place.tokens if place.phase == PREFILL else 1) / middle,
    }


def judged(
    points: Sequence[Mapping[str, Any]], roof: Roof, row: Roof, profiles: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The points with what they reach of the roof (`roof_share`) and of the row line (`row_share`), and their parts:

    reading at the rate of the row line or computing, whichever takes longer (`ceiling_s`), starting operations
    (`starting_s`), and the rest. `bound` names the largest.
    """
    starting = starting_seconds(points, profiles)
    return [{**p, **_shares(p, roof, row), "bound": _bound(p, row, starting)} for p in points]


def starting_seconds(points: Sequence[Mapping[str, Any]], profiles: Sequence[Mapping[str, Any]]) -> float:
    """The most that starting a forward's operations can take: the shortest forward that was measured took no longer,

    nor did the profiled decode step spend longer between its operations.
    """
    between = [p["classes"]["gaps"] for p in profiles if p["forward"] == DECODE]
    return min([*between, *(p["s"] for p in points)])


def _shares(p: Mapping[str, Any], roof: Roof, row: Roof) -> dict[str, float]:
    return {f"{name}_share": _least(p, one) / p["s"] for name, one in (("roof", roof), ("row", row))}


def _least(p: Mapping[str, Any], roof: Roof) -> float:
    return max(p["bytes"] / roof.read, p["flops"] / roof.flops)


def _bound(p: Mapping[str, Any], row: Roof, starting: float) -> str:
    least = _least(p, row)
    side = "compute" if p["flops"] / row.flops > p["bytes"] / row.read else "memory"
    parts = {side: least, "launch": starting, "between": p["s"] - least - starting}
    return max(parts, key=parts.__getitem__)


def outweighs(shape: Shape, tokens: int, dtype: str) -> int | None:
    """The smallest batch whose caches a decode step at that context reads more bytes of than of weights.

    None where no batch does: a state of constant size beside weights, or experts, of which more are read as well.
    """

    def heavier(batch: int) -> bool:
        found = moved(shape, cached_step(shape, tokens, batch), dtype)
        return found.cache_read > found.weights

    return bisect_left(range(MOST_BATCH), True, lo=1, key=heavier) if heavier(MOST_BATCH) else None


def weighed(shape: Shape, lengths: Iterable[int], dtype: str) -> list[dict[str, Any]]:
    """A row a context: bytes of weights and of one sequence's cache that a step reads, and the batch that outweighs."""
    rows = []
    for tokens in lengths:
        found = moved(shape, cached_step(shape, tokens), dtype)
        batch = outweighs(shape, tokens, dtype)
        rows.append({"tokens": tokens, "weight_bytes": found.weights, "cache_bytes": found.cache_read, "batch": batch})
    return rows
