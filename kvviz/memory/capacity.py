"""What fits on an accelerator: the room beside weights and activations, and the tokens and sequences it holds.

Standard library only. Activations are an estimate; what a driver, its context or a fragmented heap takes isn't counted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypedDict, Unpack

from kvviz.base.precision import precision
from kvviz.memory.formula import kv_memory, split
from kvviz.memory.views import Case, view_named
from kvviz.models.catalog.rows import Accelerator, accelerators
from kvviz.models.config_fields import Fields, checked
from kvviz.models.spec import ModelSpec, decoder_fields

MOST = 2**30  # tokens or sequences; an answer of MOST means that the cache sets no limit before it


class Options(TypedDict, total=False):
    """What `kv_memory` takes beside the tokens and the batch."""

    dtype: str
    view: str
    beams: int
    tensor_parallel: int
    source_tokens: int | None


@dataclass(frozen=True)
class Activations:
    """An estimate of a prefill's widest point: batch x tokens x (2 x hidden + 2 x intermediate) x element bytes.

    Residual stream and normed input, gate and up of one MLP; attention computed without a matrix of scores.
    """

    hidden: int
    intermediate: int
    tokens: int
    batch: int = 1
    element_bytes: int = 2

    def __post_init__(self) -> None:
        for name in ("hidden", "intermediate", "tokens", "batch", "element_bytes"):
            checked(name, getattr(self, name))

    @property
    def terms(self) -> tuple[tuple[str, int], ...]:
        """What is counted, each with its elements for one token."""
        stream, mlp = self.hidden, self.intermediate
        return ("residual stream", stream), ("normed input", stream), ("gate of the MLP", mlp), ("up of the MLP", mlp)

    @property
    def nbytes(self) -> int:
        """Bytes of all terms, for all tokens of all sequences."""
        return self.batch * self.tokens * sum(elements for _, elements in self.terms) * self.element_bytes


def activation_bytes(
    hidden_size: int, intermediate_size: int, tokens: int, batch: int = 1, element_bytes: int = 2
) -> Activations:
    """The estimate, its formula's terms beside it. Raises ConfigError for a count below 1."""
    return Activations(hidden_size, intermediate_size, tokens, batch, element_bytes)


# Under which names configs give the width of an MLP, GPT-2's null apart.
_INTERMEDIATE = (
    "intermediate_size",
    "n_inner",
    "decoder_ffn_dim",
    "ffn_dim",
    "d_ff",
    "ffn_hidden_size",
    "intermediate_size_mlp",
)
_EXPERTS = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk", "top_k_experts")
_SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")


def widths(config: Mapping[str, object]) -> tuple[int, int]:
    """Hidden and intermediate size of a config's decoder; the latter 4 x hidden where the config has none.

    Of an MLP of experts, those that one token passes count side by side.
    """
    fields = decoder_fields(config)
    hidden = fields.size("hidden_size")
    return hidden, _intermediate(fields) or 4 * hidden


def states_intermediate(config: Mapping[str, object]) -> bool:
    """Whether the config says its intermediate size, so that `widths` has not assumed 4 x hidden."""
    return _intermediate(decoder_fields(config)) is not None


def _intermediate(fields: Fields) -> int | None:
    """The widest MLP that a token passes: a plain one, or its experts together."""
    plain = max((size for name in _INTERMEDIATE if (size := _size(fields, name))), default=None)
    passed = _first(fields, _EXPERTS)
    expert = _size(fields, "moe_intermediate_size") or plain
    if not passed or not expert:
        return plain or expert
    return max(plain or 0, (passed + (_first(fields, _SHARED) or 0)) * expert)


def _size(fields: Fields, name: str) -> int | None:
    """A width; the largest where the config lists one for each layer."""
    value = fields.raw(name)
    return max(fields.indices(name) or [0]) if isinstance(value, list | tuple) else fields.optional(name, least=0)


def _first(fields: Fields, names: tuple[str, ...]) -> int | None:
    return next((size for name in names if (size := _size(fields, name))), None)


Meter = Callable[[int], int]


def _meter(spec: ModelSpec, batch: int, case: Options) -> Meter:
    """Reserved bytes as a function of tokens: `kv_memory`'s figure without its rows, each number of tokens once."""
    known = kv_memory(spec, 1, batch=batch, **case)  # checks every argument
    keep = view_named(known.view).keep
    layers = tuple(split(layer, known.tensor_parallel) for layer in spec.layers)
    follows = spec.crossing and spec.source_tokens is None and case.get("source_tokens") is None
    stored, sequences = precision(known.dtype), batch * known.beams

    @cache
    def reserved(tokens: int) -> int:
        source = tokens if follows else known.source_tokens or 0
        kept = keep(layers, Case(tokens, source, stored, spec.state_float32))
        return sequences * sum(row.allocated for row in kept)

    return reserved


def _on_the_way(spec: ModelSpec, reserved: Meter) -> Meter:
    """The most bytes that are reserved on the way to a number of tokens.

    An engine that gives blocks back behind a window needs a little less at a block's end, and much less where a chunk
    begins, than just before it.
    """
    chunks = sorted({layer.window for layer in spec.layers if layer.kind == "chunked" and layer.window})
    slides = any(layer.window for layer in spec.layers)

    def needed(tokens: int) -> int:
        ends = [tokens // chunk * chunk for chunk in chunks] + ([tokens - 1] if slides else [])
        return max(reserved(n) for n in (tokens, *ends) if n >= 1)

    return needed


def largest_context(spec: ModelSpec, room_bytes: int, *, batch: int = 1, **case: Unpack[Options]) -> int | None:
    """The most tokens that each of `batch` sequences can grow to within the room, by reserved bytes.

    None where not even one token fits; MOST where the cache does not grow beyond the room before that many.
    """
    return _largest(_on_the_way(spec, _meter(spec, batch, case)), room_bytes)


STRIDES = (256, 16, 1)  # tokens: a cell's padding and a block begin anew at multiples of these


def _largest(needed: Meter, room: int) -> int | None:
    """The largest number up to MOST whose bytes are within the room: of whole strides first, then to the token."""
    if needed(1) > room:
        return None
    if needed(MOST) <= room:
        return MOST
    low, high = 0, MOST
    for stride in STRIDES:
        if low and needed(low + 1) > room:
            return low
        low = stride * _between(
            lambda number, by=stride: needed(max(1, number * by)), room, low // stride, high // stride
        )
        high = low + stride
    return low


def _between(needed: Meter, room: int, low: int, high: int) -> int:
    """The last number that fits, where `low` does and `high` does not: by interpolation, and by halves each third time.

    Beyond full windows bytes lie on a line, so that the second guess is mostly right.
    """
    turn = 1
    while high - low > 1:
        share = (room - needed(low)) / (needed(high) - needed(low)) if turn % 3 else 0.5
        guess = low + int((high - low) * share)
        for number in (guess, guess + 1):
            if low < number < high:
                low, high = (number, high) if needed(number) <= room else (low, number)
        turn += 1
    return low


def most_sequences(spec: ModelSpec, room_bytes: int, tokens: int, **case: Unpack[Options]) -> int:
    """How many sequences of `tokens` tokens the room holds, by reserved bytes; MOST where they take none."""
    each = kv_memory(spec, tokens, **case).reserved_bytes
    return _sequences(each, room_bytes)


def _sequences(each: int, room: int) -> int:
    return min(MOST, max(0, room // each)) if each else MOST


@dataclass(frozen=True)
class Fit:
    """One accelerator: `room` bytes beside weights and activations (may be negative), and what it holds.

    `context`: tokens that `batch` sequences can grow to; `sequences`: of the asked number of tokens; `fits`: the case
    itself, all its sequences.
    """

    accelerator: Accelerator
    room: int
    context: int | None
    sequences: int
    fits: bool


def fit(
    accelerator: Accelerator,
    spec: ModelSpec,
    tokens: int,
    *,
    batch: int = 1,
    weights_bytes: int = 0,
    activation_bytes: int = 0,
    **case: Unpack[Options],
) -> Fit:
    """What one accelerator holds. Bytes are those of one device."""
    return _fits([accelerator], spec, tokens, batch, weights_bytes + activation_bytes, case)[0]


def fits_all(
    spec: ModelSpec,
    tokens: int,
    *,
    batch: int = 1,
    weights_bytes: int = 0,
    activation_bytes: int = 0,
    **case: Unpack[Options],
) -> tuple[Fit, ...]:
    """What each accelerator of the catalog holds, in its order."""
    return _fits([*accelerators().values()], spec, tokens, batch, weights_bytes + activation_bytes, case)


def _fits(
    devices: list[Accelerator], spec: ModelSpec, tokens: int, batch: int, taken: int, case: Options
) -> tuple[Fit, ...]:
    """One meter for all devices, so that what one search has looked at no other looks at again."""
    each = kv_memory(spec, tokens, **case).reserved_bytes
    needed = _on_the_way(spec, _meter(spec, batch, case))
    return tuple(_fit(device, device.memory_bytes - taken, needed, each, batch) for device in devices)


def _fit(device: Accelerator, room: int, needed: Meter, each: int, batch: int) -> Fit:
    fits = room >= 0 and batch * each <= room
    return Fit(device, room, _largest(needed, room), _sequences(each, room) if room >= 0 else 0, fits)
