"""What fits on an accelerator: the bytes left beside weights and activations, and the tokens and sequences they hold.

Activations are an estimate. The memory of a driver, its context or a fragmented heap isn't counted.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from kvviz.base.precision import precision
from kvviz.memory.engine_views import Case, view_named
from kvviz.memory.formula import kv_memory, split
from kvviz.memory.llama_cpp import USUAL
from kvviz.models.catalog.rows import Accelerator, accelerators
from kvviz.models.config_fields import NAMES, Fields
from kvviz.models.spec import ModelSpec, decoder_fields

UNLIMITED = 2**30  # tokens or sequences: an answer that means that the cache sets no limit


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

    @property
    def nbytes(self) -> int:
        """Bytes for all tokens of all sequences."""
        return self.batch * self.tokens * 2 * (self.hidden + self.intermediate) * self.element_bytes


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
    names = (*NAMES["mlp_width"], "intermediate_size_mlp")
    plain = max((size for name in names if (size := _size(fields, name))), default=None)
    passed = next((size for name in NAMES["experts_per_token"] if (size := _size(fields, name))), None)
    shared = next((size for name in NAMES["shared_experts"] if (size := _size(fields, name))), 0)
    expert = _size(fields, "moe_intermediate_size") or plain
    return max(plain or 0, (passed + shared) * expert) if passed and expert else plain or expert


def _size(fields: Fields, name: str) -> int | None:
    """A width; the largest one if the config lists one for each layer."""
    value = fields.raw(name)
    return max(fields.indices(name) or [0]) if isinstance(value, list | tuple) else fields.optional(name, least=0)


def _meter(spec: ModelSpec, batch: int, case: Mapping[str, Any]) -> Callable[[int], int]:
    """The most bytes that are reserved on the way to a number of tokens: `kv_memory`'s figures without their rows.

    An engine that frees blocks behind a window needs a little less after a block's end, and much less after a chunk's,
    than just before: Llama 4, in chunks of 8,192 tokens, needs less for 16,385 tokens than for 16,384 on the way.
    """
    known = kv_memory(spec, 1, batch=batch, **case)  # checks every argument
    view = view_named(known.view)
    layers = view.counted([split(layer, known.tensor_parallel) for layer in spec.layers])
    follows = spec.crossing and spec.source_tokens is None and case.get("source_tokens") is None
    stored, sequences, started = precision(known.dtype), batch * known.beams, known.llama_cpp or USUAL
    chunks = {layer.window for layer in layers if layer.kind == "chunked" and layer.window}
    slides = any(layer.window for layer in layers)

    @cache
    def reserved(tokens: int) -> int:
        source = tokens if follows else known.source_tokens or 0
        kept = view.keep(layers, Case(tokens, source, stored, spec.state_float32, sequences, started))
        return sum(row.allocated for row in kept)

    def needed(tokens: int) -> int:
        ends = [tokens // chunk * chunk for chunk in chunks] + ([tokens - 1] if slides else [])
        return max(reserved(n) for n in (tokens, *ends) if n >= 1)

    return needed


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
    **case: Any,
) -> tuple[Fit, ...]:
    """What each accelerator holds, those of the catalog in its order by default. Bytes are those of one device.

    `case`: what `kv_memory` takes beside the tokens and the batch.
    """
    each = kv_memory(spec, tokens, **case).reserved_bytes
    needed = _meter(spec, batch, case)  # one for all devices: it remembers what it has computed
    found = []
    for device in accelerators().values() if devices is None else devices:
        room = device.memory_bytes - weights_bytes - activation_bytes
        context = bisect_right(range(1, UNLIMITED + 1), room, key=needed) or None
        sequences = 0 if room < 0 else min(UNLIMITED, room // each) if each else UNLIMITED
        found.append(Fit(device, room, context, sequences, room >= 0 and batch * each <= room))
    return tuple(found)
