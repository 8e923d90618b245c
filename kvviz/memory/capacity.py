"""What fits on an accelerator: the bytes left beside weights and activations, and the tokens and sequences they hold.

Standard library only. Activations are an estimate. The memory of a driver, its context or a fragmented heap isn't
counted.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypedDict, Unpack

from kvviz.base.precision import precision
from kvviz.memory.engine_views import Case, view_named
from kvviz.memory.formula import kv_memory, split
from kvviz.models.catalog.rows import Accelerator, accelerators
from kvviz.models.config_fields import Fields, checked
from kvviz.models.spec import ModelSpec, decoder_fields

UNLIMITED = 2**30  # tokens or sequences: an answer that means that the cache sets no limit


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

    Residual stream and normed input, gate and up of one MLP; attention computed without a matrix of scores. Raises
    ConfigError for a count below 1.
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
        """What is counted, each with its elements per token."""
        stream, mlp = self.hidden, self.intermediate
        return ("residual stream", stream), ("normed input", stream), ("gate of the MLP", mlp), ("up of the MLP", mlp)

    @property
    def nbytes(self) -> int:
        """Bytes of all terms, for all tokens of all sequences."""
        return self.batch * self.tokens * sum(elements for _, elements in self.terms) * self.element_bytes


# The names under which configs give the width of an MLP; GPT-2's is null.
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
    """Hidden and intermediate size of a config's decoder; the latter is 4 x hidden if the config has none.

    In an MLP of experts, those that one token passes count together: two of 14,336 in Mixtral are 28,672.
    """
    fields = decoder_fields(config)
    hidden = fields.size("hidden_size")
    return hidden, _intermediate(fields) or 4 * hidden


def states_intermediate(config: Mapping[str, object]) -> bool:
    """Whether the config gives its intermediate size; if not, `widths` assumes 4 x hidden."""
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
    """A width; the largest one if the config lists one for each layer."""
    value = fields.raw(name)
    return max(fields.indices(name) or [0]) if isinstance(value, list | tuple) else fields.optional(name, least=0)


def _first(fields: Fields, names: tuple[str, ...]) -> int | None:
    return next((size for name in names if (size := _size(fields, name))), None)


Meter = Callable[[int], int]


def _meter(spec: ModelSpec, batch: int, case: Options) -> Meter:
    """Reserved bytes as a function of tokens: `kv_memory`'s figure without its rows, remembered for each number."""
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

    An engine that frees blocks behind a window needs a little less after a block's end, and much less after a chunk's,
    than just before: Llama 4, in chunks of 8,192 tokens, needs less for 16,385 tokens than for 16,384 on the way.
    """
    chunks = sorted({layer.window for layer in spec.layers if layer.kind == "chunked" and layer.window})
    slides = any(layer.window for layer in spec.layers)

    def needed(tokens: int) -> int:
        ends = [tokens // chunk * chunk for chunk in chunks] + ([tokens - 1] if slides else [])
        return max(reserved(n) for n in (tokens, *ends) if n >= 1)

    return needed


STRIDES = (256, 16, 1)  # tokens: bytes jump at multiples of llama.cpp's cells and of blocks


def _largest(needed: Meter, room: int) -> int | None:
    """The largest number up to UNLIMITED whose bytes are within the room: in whole strides first, then to the token."""
    if needed(1) > room:
        return None
    if needed(UNLIMITED) <= room:
        return UNLIMITED
    low, high = 0, UNLIMITED
    for stride in STRIDES:
        if low and needed(low + 1) > room:
            return low
        low = stride * _last_that_fits(needed, stride, room, low // stride, high // stride)
        high = low + stride
    return low


def _last_that_fits(needed: Meter, stride: int, room: int, low: int, high: int) -> int:
    """The last number of strides that fits, if `low` does and `high` does not.

    By interpolation, and by halves each third time. Beyond full windows the bytes lie on a line, so the second guess is
    mostly right.
    """

    def bytes_of(strides: int) -> int:
        return needed(max(1, strides * stride))

    turn = 1
    while high - low > 1:
        share = (room - bytes_of(low)) / (bytes_of(high) - bytes_of(low)) if turn % 3 else 0.5
        guess = low + int((high - low) * share)
        for number in (guess, guess + 1):
            if low < number < high:
                low, high = (number, high) if bytes_of(number) <= room else (low, number)
        turn += 1
    return low


@dataclass(frozen=True)
class Fit:
    """One accelerator: `room` bytes beside weights and activations (may be negative), and what they hold.

    `context`: tokens that each of `batch` sequences can grow to, None if not even one token fits; `sequences`: how many
    of the requested length fit; `fits`: whether all the requested sequences do.
    """

    accelerator: Accelerator
    room: int
    context: int | None
    sequences: int
    fits: bool


def fits_all(
    spec: ModelSpec,
    tokens: int,
    *,
    batch: int = 1,
    weights_bytes: int = 0,
    activation_bytes: int = 0,
    devices: Iterable[Accelerator] | None = None,
    **case: Unpack[Options],
) -> tuple[Fit, ...]:
    """What each accelerator holds, those of the catalog in its order by default. Bytes are those of one device."""
    each = kv_memory(spec, tokens, **case).reserved_bytes
    needed = _on_the_way(spec, _meter(spec, batch, case))  # one for all devices: it remembers what it has computed
    found = []
    for device in accelerators().values() if devices is None else devices:
        room = device.memory_bytes - weights_bytes - activation_bytes
        sequences = min(UNLIMITED, max(0, room // each)) if each else UNLIMITED
        fits = room >= 0 and batch * each <= room
        found.append(Fit(device, room, _largest(needed, room), sequences if room >= 0 else 0, fits))
    return tuple(found)
