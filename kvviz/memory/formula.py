"""Bytes of a cache, worked out from a ModelSpec: the tokens that each layer holds, times the bytes of a token.

Standard library only. Every figure names its view: the engine whose bytes it counts (`kvviz.memory.engine_views`).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from kvviz.base.errors import ConfigError
from kvviz.base.precision import precision
from kvviz.memory.engine_views import Case, Kept, view_named
from kvviz.models.config_fields import checked
from kvviz.models.layers import LayerSpec
from kvviz.models.spec import ModelSpec

# Bytes of one element of a tensor; the names are torch's.
DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class LayerMemory:
    """One layer's cache, worked out or probed: its format, the tokens seen and held, their bytes.

    `state_bytes` are those of whatever it keeps beside keys and values: recurrent states, an indexer's keys.
    """

    index: int
    kind: str
    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None
    seen: int
    held: int
    key_shape: tuple[int, ...]
    value_shape: tuple[int, ...]
    state_bytes: int
    nbytes: int
    allocated: int

    @property
    def fixed_bytes(self) -> int:
        """Bytes that do not grow with tokens: recurrent states, and what was written once from an encoder."""
        if self.kind == "cross":
            return self.nbytes
        return 0 if self.kind == "indexed" else self.state_bytes


@dataclass(frozen=True)
class Memory:
    """A cache's bytes by layer, in one view. `method` says where they are from: spec (the formula) or probe.

    With `tensor_parallel` > 1 they are the bytes of each single device.
    """

    model: str
    source: str
    method: str
    view: str
    tokens: int
    batch: int
    dtype: str
    layers: tuple[LayerMemory, ...]
    per_token_bytes: int
    weights_bytes: int | None = None
    beams: int = 1
    tensor_parallel: int = 1
    source_tokens: int | None = None
    cache_class: str | None = None  # of the object that a probe read

    @property
    def total_bytes(self) -> int:
        """Bytes of the tokens held and the states, over all layers."""
        return sum(layer.nbytes for layer in self.layers)

    @property
    def reserved_bytes(self) -> int:
        """Bytes allocated, over all layers."""
        return sum(layer.allocated for layer in self.layers)

    @property
    def fixed_bytes(self) -> int:
        """Bytes that do not grow with tokens."""
        return sum(layer.fixed_bytes for layer in self.layers)

    @property
    def plateau_bytes(self) -> int:
        """Bytes of windows that are full, so that they grow no more."""
        full = (row for row in self.layers if row.window is not None and row.held < row.seen)
        return sum(row.nbytes - row.fixed_bytes for row in full)

    def to_dict(self) -> dict[str, Any]:
        """The document of `calc` and `probe`."""
        data = asdict(self)
        for name in ("total_bytes", "reserved_bytes", "fixed_bytes", "plateau_bytes"):
            data[name] = getattr(self, name)
        return data


def kv_memory(
    spec: ModelSpec,
    tokens: int,
    *,
    batch: int = 1,
    dtype: str = "bfloat16",
    view: str = "architecture",
    beams: int = 1,
    tensor_parallel: int = 1,
    source_tokens: int | None = None,
    weights_bytes: int | None = None,
) -> Memory:
    """The cache of `spec` after `tokens` tokens of each sequence: the sum over layers of tokens held x bytes a token.

    `source_tokens`: length of an encoder's output; by default what the architecture fixes, else `tokens`. Raises
    ConfigError for a count below 1, or an unknown dtype or view.
    """
    counts = {"tokens": tokens, "batch": batch, "beams": beams, "tensor_parallel": tensor_parallel}
    for name, value in counts.items():
        checked(name, value)
    check_dtype(dtype, view)
    if source_tokens is not None:
        checked("source_tokens", source_tokens)
    else:
        source_tokens = _source_tokens(spec, tokens)
    layers = tuple(split(layer, tensor_parallel) for layer in spec.layers)
    rows, more = (
        _rows(spec, layers, Case(count, source_tokens, precision(dtype), spec.state_float32), view)
        for count in (tokens, tokens + 1)
    )
    sequences = batch * beams
    return Memory(
        model=spec.name,
        source=spec.source,
        method="spec",
        view=view,
        tokens=tokens,
        batch=batch,
        dtype=precision(dtype).name,
        layers=tuple(_layer_memory(*row, tokens, source_tokens, sequences) for row in rows),
        per_token_bytes=sequences * (_total(more) - _total(rows)),
        weights_bytes=weights_bytes,
        beams=beams,
        tensor_parallel=tensor_parallel,
        source_tokens=source_tokens if any(layer.kind == "cross" for layer in layers) else None,
    )


def check_dtype(dtype: str, view: str) -> None:
    """Raise ConfigError if a view has no cache in that dtype."""
    row, offered = precision(dtype), view_named(view).dtypes
    if row.name not in offered:
        raise ConfigError(f"the view {view} has no cache in {row.name}; it has {', '.join(offered)}")


def _source_tokens(spec: ModelSpec, tokens: int) -> int:
    """Tokens of the cross-attention: fixed by the architecture, else as many as the decoder's own.

    A decoder that attends to images has none without an image.
    """
    if spec.source_tokens is not None:
        return spec.source_tokens
    return tokens if spec.crossing else 0


def split(layer: LayerSpec, devices: int) -> LayerSpec:
    """A layer on each of `devices` devices, which divide its KV heads, or repeat them if there are fewer heads.

    Of 8 KV heads, each of 4 devices has 2, and each of 16 has 1. A latent row is on every device. Source: vLLM,
    https://github.com/vllm-project/vllm/blob/001cabc1/vllm/model_executor/models/llama.py
    """
    if devices == 1 or not layer.kv_heads or layer.latent:
        return _check_states(layer, devices)
    heads = layer.kv_heads
    if heads % devices and devices % heads:
        raise ConfigError(
            f"tensor_parallel is {devices}; it has to divide the {heads} KV heads or be a multiple of them"
        )
    stored = split(layer.stored, devices) if layer.stored else None
    return _check_states(replace(layer, kv_heads=max(1, heads // devices), stored=stored), devices)


def _check_states(layer: LayerSpec, devices: int) -> LayerSpec:
    if devices > 1 and layer.states:
        raise ConfigError(
            "how recurrent states are shared out over devices differs by engine; tensor_parallel has to be 1"
        )
    return layer


Row = tuple[int, LayerSpec, Kept]


def _rows(spec: ModelSpec, layers: Sequence[LayerSpec], case: Case, view: str) -> list[Row]:
    """Each layer with its number and what it keeps; a layer of cross-attention has the number of its self-attention."""
    own = spec.decoder_layers
    kept = view_named(view).keep(layers, case)
    shown_as = [layer.as_stored if view.startswith("hf") else layer for layer in layers]
    return [(i if i < own else i - own, layer, kept[i]) for i, layer in enumerate(shown_as)]


def _total(rows: Sequence[Row]) -> int:
    return sum(kept.nbytes for _, _, kept in rows)


def _layer_memory(
    index: int, layer: LayerSpec, kept: Kept, tokens: int, source_tokens: int, sequences: int
) -> LayerMemory:
    shape = (sequences, layer.kv_heads, kept.held) if layer.kv_heads else ()
    return LayerMemory(
        index=index,
        kind=layer.kind,
        kv_heads=layer.kv_heads,
        key_dim=layer.key_dim,
        value_dim=layer.value_dim,
        window=layer.window,
        seen=source_tokens if layer.kind == "cross" else tokens,
        held=kept.held,
        key_shape=(*shape, layer.key_dim) if shape else (),
        value_shape=(*shape, layer.value_dim) if shape else (),
        state_bytes=sequences * kept.state_bytes,
        nbytes=sequences * kept.nbytes,
        allocated=sequences * kept.allocated,
    )


def cache_bytes(spec: ModelSpec, tokens: int, batch: int = 1, dtype: str = "float32", view: str = "hf-dynamic") -> int:
    """Bytes of the whole cache after `tokens` tokens: the sum over layers."""
    return kv_memory(spec, tokens, batch=batch, dtype=dtype, view=view).total_bytes


def peak_cache_bytes(spec: ModelSpec, tokens: int, batch: int = 1, dtype: str = "float32") -> int:
    """Bytes that a dynamic cache can reach on the way to `tokens`.

    Windows save nothing here: right after a long prefill, a sliding layer is a view of the whole prefill.
    """
    layers = tuple(replace(layer.as_stored, window=None) for layer in spec.layers)
    return cache_bytes(replace(spec, layers=layers), tokens, batch, dtype)


def logits_bytes(spec: ModelSpec, batch: int = 1, dtype: str = "float32") -> int:
    """Bytes of one step's logits: batch x 1 position x vocabulary x element bytes."""
    return batch * (spec.vocab_size or 0) * DTYPE_BYTES[dtype]
