"""Predict the latency curve of a decoder from the device's measured pace for each kind of work.

`kvviz.decoding.measure_paces` measures the paces on synthetic tensors, never on a step of a model.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Annotated, Any

from kvviz.base.checks import Absent, list_of, number, short_name, whole
from kvviz.cost.blocks import Forward, Matrix
from kvviz.cost.flops import Rates, cached_step, moved, prefill
from kvviz.cost.shape import Shape
from kvviz.cost.step_estimate import StepEstimate
from kvviz.memory.formula import DTYPE_BYTES

AGAIN, JOINED = "again", "joined"  # a mode's work in each step: the whole text; or one token, with a concatenated cache

_Pace = Annotated[float, number(0, 1e3)]
_Paces = Annotated[tuple[float, ...], list_of(number(0, 1e3), 40)]
_Sizes = Annotated[tuple[int, ...], list_of(whole(1, 10**6), 40)]
# Files of earlier versions lack these.
_LaterPace = Annotated[float, number(0, 1e3), Absent(0.0)]
_LaterPaces = Annotated[tuple[float, ...], list_of(number(0, 1e3), 40), Absent([])]
_LaterBytes = Annotated[tuple[int, ...], list_of(whole(), 40), Absent([])]
_LaterSizes = Annotated[tuple[int, ...], list_of(whole(1, 10**6), 40), Absent([])]


@dataclass(frozen=True)
class Paces:
    """Measured seconds per element, FLOP, byte or operation, or of a forward.

    `streamed`: per element of weights that come from memory, for a product of each number of `rows`. `resident`: the
    same for weights that stay in the processor's cache of `cache_bytes`. `head`: the same for the head's matrix, far
    wider than those of the layers, at each of `head_rows`. `attending`: per FLOP of a text's attention to itself, by
    its number of `queries`. Where each layer holds so many `cached` tokens, `looking` is per FLOP of one query's
    attention, and `joining` per byte that a cache's growth by concatenation reads or writes. `elementwise_s`: all
    elementwise operations of a forward, at each of `elementwise_rows`, beyond their launch. `starting`: launch overhead
    per operation where each product comes with so many bytes (`moved`) of weights, activations and cache. They evict
    what launching needs from the processor's caches. `start`: the same, of the model's weights alone. `again`: what a
    launch takes longer in a forward over a whole text; `several`: in a step of several sequences. `evicting`: what it
    takes longer to fetch an element of weights that stay in the processor's cache, where so many bytes (`moved`) of
    other memory come with each product.
    """

    dtype: Annotated[str, short_name]
    rows: _Sizes
    streamed: _Paces
    resident: _Paces
    cache_bytes: Annotated[int, whole()]
    start: _Pace
    queries: _LaterSizes = ()
    attending: _LaterPaces = ()
    cached: _LaterSizes = ()
    looking: _LaterPaces = ()
    joining: _LaterPaces = ()
    elementwise_rows: _LaterSizes = ()
    elementwise_s: _LaterPaces = ()
    moved: _LaterBytes = ()
    starting: _LaterPaces = ()
    head_rows: _LaterSizes = ()
    head: _LaterPaces = ()
    evicting: _LaterPaces = ()
    again: _LaterPace = 0.0
    several: _LaterPace = 0.0

    @property
    def rates(self) -> Rates:
        """The rates that estimates use: the read rate of a one-row product, the rate of 64 rows, half a launch.

        A launch counts half because an estimate assumes OPERATIONS_PER_LAYER, about twice the operations of a step.
        """
        return Rates(DTYPE_BYTES[self.dtype] / self.streamed[0], 2 * 64 / self.product(64, 1), self.start / 2)

    def near(self, nbytes: float) -> Rates:
        """The rates for a step that reads so many bytes: from the processor's own cache if they fit into it."""
        if nbytes > self.cache_bytes or not self.resident[0]:
            return self.rates
        return replace(self.rates, read=DTYPE_BYTES[self.dtype] / self.resident[0])

    def product(self, rows: float, elements: float, *, resident: bool = False, head: bool = False) -> float:
        """Seconds of a product of `rows` rows with `elements` elements of weights."""
        if head and self.head:
            return elements * _between(self.head_rows, self.head, rows)
        return elements * _between(self.rows, self.resident if resident else self.streamed, rows)

    def elementwise(self, rows: int) -> float:
        """Seconds of all elementwise operations of a forward over so many rows, beyond their launch."""
        return _between(self.elementwise_rows, self.elementwise_s, rows)

    def launch(self, moved: float, *, whole: bool = False, several: bool = False) -> float:
        """Seconds of launching an operation in a forward that moves so many bytes for each product.

        `whole`: the forward is over a whole text; `several`: it is over one token of each of several sequences.
        """
        longer = self.again if whole else self.several if several else 0.0
        return _pace_at(self.moved, self.starting, moved) + longer

    def evicted(self, beside: float) -> float:
        """Seconds per element of resident weights that are fetched anew: `beside` bytes come with each product."""
        return _pace_at(self.moved, self.evicting, beside) if self.evicting else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def _between(sizes: Sequence[int], known: Sequence[float], size: float) -> float:
    """Interpolate linearly between what was measured at some sizes; beyond the last one it is proportional."""
    if size >= sizes[-1]:
        return known[-1] * (size / sizes[-1] if sizes[-1] else 1)
    if size <= sizes[0]:  # there may be no other
        return known[0]
    place = bisect_left(sizes, size)
    low, high = sizes[place - 1], sizes[place]
    share = (size - low) / (high - low)
    return known[place - 1] + share * (known[place] - known[place - 1])


def _pace_at(sizes: Sequence[int], paces: Sequence[float], size: float) -> float:
    """Interpolate a pace linearly; beyond the last measured size it stays the same."""
    return _between(sizes, paces, min(size, sizes[-1]))


def step_parts(shape: Shape, forward: Forward, paces: Paces, operations: int) -> dict[str, float]:
    """Seconds of a forward by kind of work: the amount of each block's work times the pace of its kind."""
    matrices, resident = _matrices(shape, paces)
    others = sum(count * block.flops(forward) for block, count in shape.counts.items() if not isinstance(block, Matrix))
    tokens = forward.batch * forward.seen
    one = forward.new == 1 and forward.held
    number, all_moved = max(1, sum(count for _, count in matrices)), moved(shape, forward, paces.dtype)
    joined = all_moved.cache_copied  # a cache that grows by concatenation is read and written anew
    # attention reads what was just written, which evicts nothing more
    each = (all_moved.weights + all_moved.activations + all_moved.cache_written + joined) / number
    evicted = paces.evicted(each - all_moved.weights / number) if resident else 0.0
    sizes, attention = (paces.cached, paces.looking) if one else (paces.queries, paces.attending)
    return {
        "products": sum(
            count * (_product(block, forward, paces, resident) + evicted * _elements(block, forward))
            for block, count in matrices
        ),
        "attention": others * _pace_at(sizes, attention, tokens if one else forward.new),
        "joining": joined * _pace_at(paces.cached, paces.joining, tokens),
        "elementwise": paces.elementwise(forward.batch * forward.new),
        "starting": operations * paces.launch(each, whole=not one, several=forward.batch > 1),
    }


def _matrices(shape: Shape, paces: Paces) -> tuple[list[tuple[Matrix, int]], bool]:
    """The matrices of a model with their counts, and whether all of them stay in the processor's cache."""
    found = [(block, count) for block, count in shape.counts.items() if isinstance(block, Matrix)]
    weights = sum(count * block.weights for block, count in found)
    return found, DTYPE_BYTES[paces.dtype] * weights <= paces.cache_bytes


def _elements(block: Matrix, forward: Forward) -> float:
    return block.inputs * block.outputs * block.copies if block.weightless else block.weights_read(forward)


def _product(block: Matrix, forward: Forward, paces: Paces, resident: bool) -> float:
    """Seconds of one matrix; for experts, of those expected to be chosen, each with its share of the rows."""
    elements, rows = _elements(block, forward), float(block.rows(forward))
    if not elements or not rows:
        return 0.0
    active = elements / (block.inputs * block.outputs)
    rows = max(1.0, rows * block.used / active)
    return paces.product(rows, elements, resident=resident, head=block.term == "head")


def step_of(shape: Shape, work: str, tokens: int, batch: int) -> Forward:
    """The decode step that makes the context `tokens` long, in a mode that does this work."""
    return (prefill if work == AGAIN else cached_step)(shape, tokens, batch)


def foretold(shape: Shape, forward: Forward, paces: Paces, operations: int) -> StepEstimate:
    """The prediction of a forward in the four parts that a verdict names; their sum is `predict`'s on a CPU.

    Reading the weights is what their products take with one row; what more rows add to it is arithmetic.
    """
    parts, (matrices, resident) = step_parts(shape, forward, paces, operations), _matrices(shape, paces)
    reading = sum(
        count * paces.product(1, _elements(block, forward), resident=resident, head=block.term == "head")
        for block, count in matrices
        if block.rows(forward)
    )
    looking = "computing_s" if forward.new > 1 else "scan_s"
    found = {
        "weights_s": min(reading, parts["products"]),
        "computing_s": max(0.0, parts["products"] - reading) + parts["elementwise"],
        "starting_s": parts["starting"],
        "scan_s": parts["joining"],
    }
    return StepEstimate(forward.seen, **{**found, looking: found[looking] + parts["attention"]})


def forward_seconds(shape: Shape, forward: Forward, paces: Paces, operations: int, *, queues: bool) -> float:
    """Predict a forward's seconds; `queues` as in `predict`."""
    found = step_parts(shape, forward, paces, operations)
    starting = found.pop("starting")
    return max(sum(found.values()), starting) if queues else sum(found.values()) + starting


def predict(
    shape: Shape,
    paces: Paces,
    works: Mapping[str, str],
    *,
    operations: int,
    prompt_tokens: int,
    new_tokens: int,
    batch: int,
    queues: bool,
) -> dict[str, list[float]]:
    """Predict the curves of modes, seconds to six digits: the prefill, then new_tokens - 1 decode steps.

    `works` maps each mode to AGAIN or JOINED. `operations` is the number of operations in a step. `queues`: the device
    computes while the next operations are launched, so the longer of the two counts.
    """

    def seconds(work: str, index: int) -> float:
        forward = step_of(shape, work if index else AGAIN, prompt_tokens + index, batch)
        return float(f"{forward_seconds(shape, forward, paces, operations, queues=queues):.6g}")

    return {mode: [seconds(work, index) for index in range(new_tokens)] for mode, work in works.items()}


def off_by(predicted: Sequence[float], measured: Sequence[float]) -> float | None:
    """Median over the decode steps of |predicted - measured| / measured; None without a decode step."""
    errors = _errors(predicted, measured)
    return median(map(abs, errors)) if errors else None


def bias(predicted: Sequence[float], measured: Sequence[float]) -> float | None:
    """Median over the decode steps of (predicted - measured) / measured; below 0, the steps took longer."""
    errors = _errors(predicted, measured)
    return median(errors) if errors else None


def _errors(predicted: Sequence[float], measured: Sequence[float]) -> list[float]:
    """Return (predicted - measured) / measured of each decode step; the first pair, the prefill, does not count."""
    pairs = list(zip(predicted, measured, strict=False))[1:]
    return [(expected - actual) / actual for expected, actual in pairs if actual > 0]
