"""The cost of a forward: FLOPs by term and bytes moved.

The FLOPs are those of the matrix products, attention and convolutions that transformers computes. They equal the count
of torch's flop counter (`bench/flops.py`); elementwise work does not count.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from kvviz.base.checks import Absent, number
from kvviz.base.errors import ConfigError
from kvviz.base.precision import WEIGHT_BITS, precision, weight_bytes
from kvviz.cost.blocks import TERMS, Attention, Block, Forward
from kvviz.cost.shape import Shape, read_shape
from kvviz.memory.engine_views import rows_bytes, token_bytes
from kvviz.memory.formula import held_bytes
from kvviz.models.config_fields import LARGEST, checked


def prefill(shape: Shape, tokens: int, batch: int = 1, source_tokens: int | None = None) -> Forward:
    """Return the forward over a prompt of `tokens` tokens; an uncached step at that context is the same forward."""
    return Forward(checked("tokens", tokens), 0, checked("batch", batch), _source(shape, tokens, source_tokens))


def cached_step(shape: Shape, tokens: int, batch: int = 1, source_tokens: int | None = None) -> Forward:
    """Return the forward over one new token that makes the context `tokens` long; the others are cached."""
    checked("tokens", tokens)
    return Forward(1, tokens - 1, checked("batch", batch), _source(shape, tokens, source_tokens))


def _source(shape: Shape, tokens: int, given: int | None) -> int:
    """Tokens of an encoder's output: the given number, else the architecture's, else as many as the decoder has."""
    if not shape.spec.crossing:
        return 0
    return checked("source_tokens", given) if given is not None else shape.spec.source_tokens or tokens


def flops(shape: Shape, forward: Forward) -> dict[str, int]:
    """FLOPs of a forward by term, without zero terms; the sums of the blocks' formulas (`kvviz.cost.blocks`)."""
    by_term = dict.fromkeys(TERMS, 0)
    for block, count in shape.counts.items():
        by_term[block.term] += count * block.flops(forward)
    return {term: value for term, value in by_term.items() if value}


def total_flops(shape: Shape, forward: Forward) -> int:
    """FLOPs of a forward, summed over all terms."""
    return sum(count * block.flops(forward) for block, count in shape.counts.items())


@dataclass(frozen=True)
class Moved:
    """Bytes that a forward reads or writes if no processor cache keeps any of them.

    `weights`: every matrix once (of experts, those expected to be chosen) and the rows read from the embedding table.
    `cache_read`, `cache_written`: keys, values and states. `cache_copied`: what a cache that grows by concatenation
    reads and writes again. `activations`: inputs and outputs of every product, including attention's scores.
    """

    weights: int
    cache_read: int
    cache_written: int
    cache_copied: int
    activations: int


def moved(shape: Shape, forward: Forward, dtype: str = "bfloat16") -> Moved:
    """Bytes that a forward moves with weights, cache and activations in `dtype`; activations are never quantized."""
    read = cache_bytes_read(shape, forward.seen, forward.batch, dtype, forward.source or None) if forward.held else 0
    held = cache_bytes_read(shape, forward.held, forward.batch, dtype, forward.source or None) if forward.held else 0
    elements = sum(count * block.activations(forward) for block, count in shape.counts.items())
    return Moved(
        weights=weight_bytes_read(shape, forward, dtype),
        cache_read=read,
        cache_written=cache_bytes_written(shape, forward, dtype),
        cache_copied=2 * held,
        activations=elements * precision(dtype).state_bytes,
    )


def weight_bytes_read(shape: Shape, forward: Forward, dtype: str = "bfloat16") -> int:
    """Bytes of the weights that a forward reads: each matrix once, and one row of the embeddings per token.

    `Matrix.weights_read` gives the expected number of experts. Norms and biases do not count.
    """
    elements = sum(count * block.weights_read(forward) for block, count in shape.counts.items())
    return weight_bytes(round(elements) + forward.batch * forward.new * shape.hidden, dtype)


def cache_bytes_read(
    shape: Shape, tokens: int, batch: int = 1, dtype: str = "bfloat16", source_tokens: int | None = None
) -> int:
    """Bytes of keys, values and states that a decode step reads; its own token makes the context `tokens` long.

    The cache follows `held_bytes`; keys and values that several layers share are read once for each of them.
    """
    read = shape.caches_read
    return held_bytes(shape.spec, read, tokens, batch=batch, dtype=dtype, source_tokens=source_tokens)


def cache_bytes_written(shape: Shape, forward: Forward, dtype: str = "bfloat16") -> int:
    """Bytes of the new tokens' keys and values, and of the states, which every forward rewrites completely."""
    element, wide, total = precision(dtype), shape.spec.state_float32, 0
    for layer, count in shape.caches.items():
        encoded = 0 if forward.held else forward.source
        tokens = encoded if layer.kind == "cross" else forward.new
        grown = tokens * token_bytes(layer, element) + rows_bytes(layer, tokens, element)
        states = sum(s.elements * (4 if wide else s.element_bytes(element.state_bytes)) for s in layer.states)
        total += count * (grown + states)
    return forward.batch * total


def working_bytes(shape: Shape, forward: Forward, dtype: str = "bfloat16", *, eager: bool = False) -> int:
    """Upper limit of the bytes of intermediate results that a forward keeps at once: those of its widest layer.

    Fused attention keeps its scores on the chip; `eager` attention writes them to memory.
    """

    def elements(block: Block) -> int:
        scores = block.score_elements(forward) if isinstance(block, Attention) and not eager else 0
        return block.activations(forward) - scores

    widest = max(sum(map(elements, blocks)) for blocks in (*set(shape.layers), shape.outside))
    return widest * precision(dtype).state_bytes


def square_equals_linear(shape: Shape) -> int | None:
    """Smallest context T at which attention's products cost at least as much as the rest of the layers.

    In a forward over all of T, attention grows with T^2 and the rest with T. The head does not count, because only one
    position goes through it. None for a model without attention.
    """
    counts = Counter(block for layer in shape.layers for block in layer)
    square = {block: n for block, n in counts.items() if isinstance(block, Attention) and not block.across}
    if not square:
        return None

    def overtaken(tokens: int) -> bool:
        work = Forward(tokens, source=1)
        products = sum(n * block.flops(work) for block, n in square.items())
        return 2 * products >= sum(n * block.flops(work) for block, n in counts.items())

    return bisect_left(range(LARGEST), True, lo=1, key=overtaken)


def document(
    shape: Shape, tokens: int, *, batch: int = 1, dtype: str = "bfloat16", source_tokens: int | None = None
) -> dict[str, Any]:
    """The document of `kvviz cost --json`: a decode step that makes the context `tokens` long.

    `prefill_flops` belongs to the forward over a prompt of that length; an uncached step is the same forward.
    """
    if precision(dtype).name not in WEIGHT_BITS:
        raise ConfigError(f"dtype is {dtype!r}; of weights and cache together it is one of {', '.join(WEIGHT_BITS)}")
    whole, step = (make(shape, tokens, batch, source_tokens) for make in (prefill, cached_step))
    step_bytes, whole_bytes = moved(shape, step, dtype), moved(shape, whole, dtype)
    return {
        "model": shape.spec.name,
        "source": shape.spec.source,
        "tokens": tokens,
        "batch": batch,
        "dtype": precision(dtype).name,
        "view": "architecture",
        "prefill_flops": total_flops(shape, whole),
        "cached_step_flops": total_flops(shape, step),
        "uncached_step_flops": total_flops(shape, whole),
        "weight_bytes_read": step_bytes.weights,
        "cache_bytes_read": cache_bytes_read(shape, tokens, batch, dtype, step.source or None),  # also at 1 token
        "cache_bytes_written": step_bytes.cache_written,
        "activation_bytes": step_bytes.activations,
        "uncached_weight_bytes_read": whole_bytes.weights,
        "uncached_activation_bytes": whole_bytes.activations,
        "square_equals_linear_at_tokens": square_equals_linear(shape),
        "cached_step_flops_by_term": flops(shape, step),
        "uncached_step_flops_by_term": flops(shape, whole),
    }


def text(found: Mapping[str, Any]) -> str:
    """Format the document as the lines that `kvviz cost` prints without --json."""
    once, again = found["cached_step_flops"], found["uncached_step_flops"]
    meets = found["square_equals_linear_at_tokens"]
    square = "no attention" if meets is None else f"attention overtakes the layers' other products at {meets:,} tokens"
    return (
        f"{found['model']}, a step at {found['tokens']:,} tokens x {found['batch']}, {found['dtype']}\n"
        f"with the cache:    {once:,} FLOPs; reads {found['weight_bytes_read']:,} B of weights "
        f"and {found['cache_bytes_read']:,} B of cache\n"
        f"without the cache: {again:,} FLOPs, {again / once:,.1f} times as many (so is a prefill of that length)\n"
        f"{square}"
    )


_Rate = Annotated[float, number(1e-12, 1e18)]


@dataclass(frozen=True)
class Rates:
    """Rates measured on this device: `read` in bytes/s of a one-row product, `flops` in FLOP/s of a matrix product.

    `launch` is the time of the fastest operation in seconds. `half` is the rate of a matrix product in half precision;
    None if it was not measured.
    """

    read: _Rate
    flops: _Rate
    launch: _Rate
    half: Annotated[_Rate | None, Absent(None)] = None

    def flops_in(self, dtype: str) -> float:
        """Return the rate of a product in a dtype (FLOP/s): that of float32 if its own was not measured."""
        return self.half if self.half and dtype in ("bfloat16", "float16") else self.flops


def estimated(config: Mapping[str, object] | None) -> Shape | None:
    """Return the shape of a config; None if its work can't be counted, so that the estimate uses the parameters."""
    try:
        return None if config is None else read_shape(config)
    except ConfigError:
        return None
