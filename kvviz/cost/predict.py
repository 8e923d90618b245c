"""Predict the latency curve of a decoder from the device's measured pace for each kind of work.

`kvviz.decoding.measure_paces` measures the paces on synthetic tensors, never on a step of a model.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Annotated, Any

from kvviz.base.checks import list_of, number, short_name, whole
from kvviz.cost.blocks import Forward, Matrix
from kvviz.cost.flops import Rates, cache_bytes_read, cached_step, prefill
from kvviz.cost.shape import Shape
from kvviz.cost.step_estimate import StepEstimate
from kvviz.memory.formula import DTYPE_BYTES

PASSES = 24  # elementwise passes over a layer's hidden rows (norms, residuals, rotary positions); order of magnitude
AGAIN, JOINED = "again", "joined"  # a mode's work in each step: the whole text; or one token, with a concatenated cache

_Pace = Annotated[float, number(0, 1e3)]
_PaceByRows = Annotated[tuple[float, ...], list_of(number(0, 1e3), 40)]


@dataclass(frozen=True)
class Paces:
    """Measured seconds per element, FLOP, byte or operation.

    `streamed`: per element of weights that come from memory, for a product of each number of `rows`. `resident`: the
    same for weights that stay in the processor's cache of `cache_bytes`. `attention`: per FLOP of a prompt's attention.
    `joined`: per byte that a concatenation reads or writes. `activation`: per element of the MLP's activation.
    `elementwise`: per element of a plain multiplication. `start`: launch overhead per operation.
    """

    dtype: Annotated[str, short_name]
    rows: Annotated[tuple[int, ...], list_of(whole(1, 10**6), 40)]
    streamed: _PaceByRows
    resident: _PaceByRows
    cache_bytes: Annotated[int, whole()]
    attention: _Pace
    joined: _Pace
    activation: _Pace
    elementwise: _Pace
    start: _Pace

    @property
    def rates(self) -> Rates:
        """The rates that estimates use: the read rate of a one-row product, the rate of 64 rows, half a launch.

        A launch counts half because an estimate assumes OPERATIONS_PER_LAYER, about twice the operations of a step.
        """
        return Rates(DTYPE_BYTES[self.dtype] / self.streamed[0], 2 * 64 / self.product(64, 1), self.start / 2)

    def product(self, rows: float, elements: float, *, resident: bool = False) -> float:
        """Seconds of a product of `rows` rows with `elements` elements of weights.

        Between two measured numbers of rows the pace is interpolated linearly; beyond the last one it is proportional
        to rows.
        """
        paces = self.resident if resident else self.streamed
        if rows >= self.rows[-1]:
            return elements * paces[-1] * rows / self.rows[-1]
        place = max(1, bisect_left(self.rows, rows))
        low, high = self.rows[place - 1], self.rows[place]
        share = max(0.0, (rows - low) / (high - low))
        return elements * (paces[place - 1] + share * (paces[place] - paces[place - 1]))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def step_parts(shape: Shape, forward: Forward, paces: Paces, operations: int) -> dict[str, float]:
    """Seconds of a forward by kind of work: the amount of each block's work times the pace of its kind."""
    matrices, resident = _matrices(shape, paces)
    size = DTYPE_BYTES[paces.dtype]
    row_pace = (paces.resident if resident else paces.streamed)[0]  # one query reads the cache as one row reads weights
    others = sum(count * block.flops(forward) for block, count in shape.counts.items() if not isinstance(block, Matrix))
    inner = sum(count * _activated(block, shape.hidden, forward) for block, count in matrices)
    layers = len(shape.layers)

    def kept(tokens: int) -> int:
        return cache_bytes_read(shape, tokens, forward.batch, paces.dtype, forward.source or None)

    return {
        "products": sum(count * _product(block, forward, paces, resident) for block, count in matrices),
        "attention": others * paces.attention if forward.new > 1 else kept(forward.seen) / size * row_pace,
        "joining": 2 * kept(forward.held) * paces.joined if forward.held else 0.0,
        "activations": inner * paces.activation,
        "elementwise": layers * forward.batch * forward.new * shape.hidden * PASSES * paces.elementwise,
        "starting": operations * paces.start,
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
    elements, rows = _elements(block, forward), block.rows(forward)
    if not elements or not rows:
        return 0.0
    active = elements / (block.inputs * block.outputs)
    return paces.product(max(1.0, rows * block.used / active), elements, resident=resident)


def _activated(block: Matrix, hidden: int, forward: Forward) -> int:
    """Elements that go through the MLP's activation; they are the inputs of the matrix back to the hidden size."""
    leads_back = block.term == "mlp" and block.outputs == hidden != block.inputs
    return block.rows(forward) * block.inputs * block.used if leads_back else 0


def step_of(shape: Shape, work: str, tokens: int, batch: int) -> Forward:
    """The decode step that makes the context `tokens` long, in a mode that does this work."""
    return (prefill if work == AGAIN else cached_step)(shape, tokens, batch)


def foretold(shape: Shape, forward: Forward, paces: Paces, operations: int) -> StepEstimate:
    """The prediction of a forward in the four parts that a verdict names; their sum is `predict`'s on a CPU.

    Reading the weights is what their products take with one row; what more rows add to it is arithmetic.
    """
    parts, (matrices, resident) = step_parts(shape, forward, paces, operations), _matrices(shape, paces)
    reading = sum(
        count * paces.product(1, _elements(block, forward), resident=resident)
        for block, count in matrices
        if block.rows(forward)
    )
    looking = "computing_s" if forward.new > 1 else "scan_s"
    found = {
        "weights_s": min(reading, parts["products"]),
        "computing_s": max(0.0, parts["products"] - reading) + parts["activations"] + parts["elementwise"],
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
