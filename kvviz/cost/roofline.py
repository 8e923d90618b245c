"""Put forwards on a device's roofline: FLOPs per byte, the roof, the share reached and what bounds it.

At an intensity of I FLOP/byte the roof is min(F, B x I), with F (FLOP/s) of the fastest matrix product and B (bytes/s)
of a plain read. `kvviz.experiments.roofline.run` measures.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from kvviz.base.errors import KvvizError
from kvviz.base.precision import precision
from kvviz.cost.blocks import Attention
from kvviz.cost.ceilings import Ceilings
from kvviz.cost.flops import cached_step, moved, prefill, total_flops
from kvviz.cost.shape import Shape, read_shape
from kvviz.models.catalog.rows import Accelerator

PREFILL, DECODE = "prefill", "decode"
MOST_BATCH = 2**20
WARMUP = 3  # untimed steps, or prefills, before the timed ones


class Work(TypedDict):
    """FLOPs of a forward, the bytes that it moves, and the FLOPs per byte.

    `bytes` are those of weights, cache (read and written) and activations, which exclude attention's scores because a
    fused kernel keeps them on the chip. `copied_bytes` is what a cache that grows by concatenation moves in addition;
    it belongs to one cache design and is not part of the sum.
    """

    flops: int
    bytes: int
    weight_bytes: int
    cache_bytes: int
    activation_bytes: int
    copied_bytes: int
    intensity: float


@dataclass(frozen=True)
class Roof:
    """Two ceilings: `read` in bytes/s and `flops` in FLOP/s."""

    read: float
    flops: float

    @property
    def ridge(self) -> float:
        """Intensity (FLOP/byte) above which computing is the lower ceiling."""
        return self.flops / self.read

    def least(self, work: Mapping[str, Any]) -> float:
        """Minimum seconds of a forward: the longer of reading and computing."""
        return max(work["bytes"] / self.read, work["flops"] / self.flops)

    def at(self, intensity: float) -> float:
        """Maximum FLOP/s at an intensity in FLOP/byte."""
        return min(self.flops, self.read * intensity)


def roof_of(found: Ceilings, dtype: str) -> Roof:
    """Return the roof measured on a device, its reading the faster of a plain read and a one-row product.

    Raises KvvizError for a dtype without a measured matrix product.
    """
    if dtype not in found.matrix_rate:
        known = ", ".join(found.matrix_rate) or "none"
        raise KvvizError(f"no matrix product in {dtype} was measured on this device; measured are {known}")
    return Roof(max(found.read_bandwidth, *found.row_product.values()), found.matrix_rate[dtype])


def row_roof(found: Ceilings, dtype: str) -> Roof:
    """Return the roof with the read rate of a one-row product, or of the plain read if no such product was measured."""
    roof = roof_of(found, dtype)
    return Roof(found.row_product.get(dtype, roof.read), roof.flops)


def advertised(row: Accelerator, dtype: str) -> Roof | None:
    """Return an accelerator's roof by its data sheet; None if the sheet has no figures for the dtype."""
    flops = row.flops_per_s.get(dtype)
    return Roof(row.bandwidth_bytes_per_s, flops) if flops and row.bandwidth_bytes_per_s else None


def countable(config: Mapping[str, object] | None, name: str = "") -> Shape:
    """Return the shape of a model whose forwards can be timed and counted. Raises KvvizError for any other model."""
    shape = read_shape(config or {}, name=name)
    if shape.spec.crossing:
        raise KvvizError(f"{name or 'this model'} reads its text with an encoder; the roofline is of decoders alone")
    return shape


@dataclass(frozen=True)
class Place:
    """One measured forward: a prefill of `tokens`, or the decode step that makes the context `tokens` long."""

    phase: str
    tokens: int
    batch: int = 1


def work_of(shape: Shape, place: Place, dtype: str) -> Work:
    """Count a forward's work by the cost model; every byte comes from memory once."""
    forward = (prefill if place.phase == PREFILL else cached_step)(shape, place.tokens, place.batch)
    flops, found = total_flops(shape, forward), moved(shape, forward, dtype)
    counts = shape.counts.items()
    scores = sum(count * b.score_elements(forward) for b, count in counts if isinstance(b, Attention))
    cache = found.cache_read + found.cache_written
    activations = found.activations - scores * precision(dtype).state_bytes
    total = found.weights + cache + activations
    return {
        "flops": flops,
        "bytes": total,
        "weight_bytes": found.weights,
        "cache_bytes": cache,
        "activation_bytes": activations,
        "copied_bytes": found.cache_copied,
        "intensity": flops / total,
    }


def repeats(place: Place, least: float) -> int:
    """Number of timed repeats, by the forward's minimum seconds; odd, so that the median is a measured value."""
    if place.phase == DECODE:
        return 15 if least < 0.02 else 5
    return 9 if least < 0.02 else 5 if least < 0.2 else 3


class Point(Work):
    """A measured forward as JSON values: its work, and the median and quartiles of its seconds over the repeats."""

    phase: str
    tokens: int
    batch: int
    repeats: int
    s: float
    s_q1: float
    s_q3: float
    flops_per_s: float
    tokens_per_s: float


def point(shape: Shape, place: Place, dtype: str, timed: tuple[float, float, float], count: int) -> Point:
    """Return the point of a forward timed `count` times; `timed` is (lower quartile, median, upper quartile)."""
    work, (low, middle, high) = work_of(shape, place, dtype), timed
    return {
        "phase": place.phase,
        "tokens": place.tokens,
        "batch": place.batch,
        **work,
        "repeats": count,
        "s": middle,
        "s_q1": low,
        "s_q3": high,
        "flops_per_s": work["flops"] / middle,
        "tokens_per_s": place.batch * (place.tokens if place.phase == PREFILL else 1) / middle,
    }


def raised(roof: Roof, points: Sequence[Point], fast_memory_bytes: int) -> Roof:
    """Lift each ceiling to the highest rate that a forward has reached, so that no measurement lies above its roof.

    A forward whose weights fit into the chip's cache need not read them from memory, and tells nothing of reading.
    """
    read = [p["bytes"] / p["s"] for p in points if p["weight_bytes"] > fast_memory_bytes]
    return Roof(max(roof.read, *read, 0.0), max(roof.flops, *(p["flops_per_s"] for p in points)))


def parts(p: Mapping[str, Any], row: Roof, starting_s: float) -> dict[str, float]:
    """Divide a timed forward's seconds `s` into reading or arithmetic, launches and what is left ("between").

    The first key is "memory" or "compute", the longer of the two by the row line. As an upper limit of the launches,
    `starting_s` gives way to what has to be read and computed. Example: a step of 1 ms that could read its bytes in
    0.2 ms, with 0.5 ms of launches, has 0.3 ms left.
    """
    least = min(row.least(p), p["s"])
    side = "compute" if p["flops"] / row.flops > p["bytes"] / row.read else "memory"
    launch = min(starting_s, p["s"] - least)
    return {side: least, "launch": launch, "between": p["s"] - least - launch}


def judged(points: Sequence[Point], roof: Roof, row: Roof, starting_s: float) -> list[dict[str, Any]]:
    """Add to each point its shares of the roof and of the row line, and what bounds it: the largest of its `parts`."""
    found = []
    for p in points:
        spent = parts(p, row, starting_s)
        shares = {"roof_share": roof.least(p) / p["s"], "row_share": row.least(p) / p["s"]}
        found.append({**p, **shares, "bound": max(spent, key=spent.__getitem__)})
    return found


def starting_seconds(points: Sequence[Point], gaps: Sequence[float]) -> float:
    """Return an upper limit of a forward's launch overhead.

    The shortest measured forward contains all its launches, and so do the gaps between the operations of a profiled
    decode step (`gaps`: seconds, one sum for each profile).
    """
    return min([*gaps, *(p["s"] for p in points)])


def outweighs(shape: Shape, tokens: int, dtype: str) -> int | None:
    """Smallest batch at which a decode step reads more cache bytes than weight bytes; None if no batch does.

    With experts there may be none, because a larger batch also chooses, and reads, more experts.
    """

    def heavier(batch: int) -> bool:
        found = moved(shape, cached_step(shape, tokens, batch), dtype)
        return found.cache_read > found.weights

    return bisect_left(range(MOST_BATCH), True, lo=1, key=heavier) if heavier(MOST_BATCH) else None


def weighed(shape: Shape, lengths: Iterable[int], dtype: str) -> list[dict[str, int | None]]:
    """For each context length: the bytes of weights and of one cache that a step reads, and `outweighs`' batch."""
    rows: list[dict[str, int | None]] = []
    for tokens in lengths:
        found = moved(shape, cached_step(shape, tokens), dtype)
        batch = outweighs(shape, tokens, dtype)
        rows.append({"tokens": tokens, "weight_bytes": found.weights, "cache_bytes": found.cache_read, "batch": batch})
    return rows
