"""Bytes of a ModelSpec's cache, in an engine's view: the tokens that each layer holds, times the bytes of a token."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from kvviz.base.errors import ConfigError
from kvviz.base.precision import precision
from kvviz.memory.engine_views import Case, Kept, view_named
from kvviz.memory.llama_cpp import USUAL, LlamaCpp
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
        return 0 if self.kind in ("indexed", "compressed", "hidden") else self.state_bytes


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
    llama_cpp: LlamaCpp | None = None  # how it was started, in its view
    notes: tuple[str, ...] = ()  # what has to be said beside the figures

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
        return sum(row.nbytes - row.state_bytes for row in full)

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
    llama_cpp: LlamaCpp | None = None,
) -> Memory:
    """The cache of `spec` after `tokens` tokens of each sequence: the sum over layers of tokens held x bytes a token.

    `source_tokens`: length of an encoder's output; by default what the architecture fixes, else `tokens`. `llama_cpp`:
    how it was started, in its view alone; `dtype` is then the keys'. Raises ConfigError for a count below 1, or an
    unknown dtype or view.
    """
    for name, value in (("tokens", tokens), ("batch", batch), ("beams", beams), ("tensor_parallel", tensor_parallel)):
        checked(name, value)
    check_dtype(dtype, view)
    if view != "llama.cpp" and llama_cpp not in (None, USUAL):
        raise ConfigError(f"the options of llama.cpp do not apply to the view {view}; take the view llama.cpp")
    started = llama_cpp or USUAL
    if started.values:
        check_dtype(started.values, view)
    if (spec.heads or tensor_parallel) % tensor_parallel:
        raise ConfigError(f"tensor_parallel is {tensor_parallel}; it has to divide the {spec.heads} query heads")
    source_tokens = _source(spec, tokens, source_tokens)
    engine, stored = view_named(view), precision(dtype)
    layers = engine.counted([split(layer, tensor_parallel) for layer in spec.layers])
    sequences, own = batch * beams, spec.decoder_layers
    case = Case(tokens, source_tokens, stored, spec.state_float32, sequences, started)
    kept, next_kept = (engine.keep(layers, replace(case, tokens=count)) for count in (tokens, tokens + 1))
    rows = (
        _layer_memory(i if i < own else i - own, layer, row, tokens, source_tokens, sequences)
        for i, (layer, row) in enumerate(zip(layers, kept, strict=True))
    )
    return Memory(
        model=spec.name,
        source=spec.source,
        method="spec",
        view=view,
        tokens=tokens,
        batch=batch,
        dtype=stored.name,
        layers=tuple(rows),
        per_token_bytes=sequences * (sum(row.nbytes for row in next_kept) - sum(row.nbytes for row in kept)),
        weights_bytes=weights_bytes,
        beams=beams,
        tensor_parallel=tensor_parallel,
        source_tokens=source_tokens if any(layer.kind == "cross" for layer in layers) else None,
        llama_cpp=started if view == "llama.cpp" else None,
        notes=(*spec.notes, *_beyond(spec, tokens)),
    )


def _source(spec: ModelSpec, tokens: int, given: int | None) -> int:
    """Tokens of the encoder's output."""
    if given is not None:
        return checked("source_tokens", given)
    if spec.source_tokens is not None:
        return spec.source_tokens
    return tokens if spec.crossing else 0  # a decoder that attends to images has none without an image


def held_bytes(
    spec: ModelSpec,
    layers: Mapping[LayerSpec, int],
    tokens: int,
    *,
    batch: int = 1,
    dtype: str = "bfloat16",
    source_tokens: int | None = None,
) -> int:
    """Bytes that these layers of `spec` hold, each as often as it says: those that `kv_memory` gives them.

    A run's cost needs this at every step: so layers that are alike are counted once, and no table is made.
    """
    case = Case(tokens, _source(spec, tokens, source_tokens), precision(dtype), spec.state_float32, batch, USUAL)
    kept = view_named("architecture").keep(list(layers), case)
    return batch * sum(count * row.nbytes for count, row in zip(layers.values(), kept, strict=True))


def _beyond(spec: ModelSpec, tokens: int) -> tuple[str, ...]:
    """Say that a context is longer than the model was made for."""
    if not spec.context or not 0 < spec.context < tokens:
        return ()
    return (f"{spec.name} was made for {spec.context:,} tokens; beyond them the figure is arithmetic only.",)


def check_dtype(dtype: str, view: str) -> None:
    """Raise ConfigError if a view has no cache in that dtype."""
    row, offered = precision(dtype), view_named(view).dtypes
    if row.name not in offered:
        raise ConfigError(f"the view {view} has no cache in {row.name}; it has {', '.join(offered)}")


def split(layer: LayerSpec, devices: int) -> LayerSpec:
    """A layer on each of `devices` devices, which divide its KV heads, or repeat them if there are fewer heads.

    Of 8 KV heads, each of 4 devices has 2, and each of 16 has 1. A latent row is on every device. Source: vLLM,
    https://github.com/vllm-project/vllm/blob/001cabc1/vllm/model_executor/models/llama.py
    """
    if devices > 1 and (layer.states or layer.kind == "hidden"):
        raise ConfigError(
            "how recurrent states are shared out over devices differs by engine; tensor_parallel has to be 1"
        )
    heads = layer.kv_heads
    if devices == 1 or not heads or layer.latent:
        return layer
    if heads % devices and devices % heads:
        raise ConfigError(
            f"tensor_parallel is {devices}; it has to divide the {heads} KV heads or be a multiple of them"
        )
    stored = split(layer.stored, devices) if layer.stored else None
    return replace(layer, kv_heads=max(1, heads // devices), stored=stored)


def _layer_memory(
    index: int, layer: LayerSpec, kept: Kept, tokens: int, source_tokens: int, sequences: int
) -> LayerMemory:
    shape = (sequences, layer.kv_heads, kept.held) if layer.kv_heads else ()
    return LayerMemory(
        index=index,
        **{name: getattr(layer, name) for name in ("kind", "kv_heads", "key_dim", "value_dim", "window")},
        seen=source_tokens if layer.kind == "cross" else tokens,
        held=kept.held,
        key_shape=(*shape, layer.key_dim) if shape else (),
        value_shape=(*shape, layer.value_dim) if shape else (),
        state_bytes=sequences * kept.state_bytes,
        nbytes=sequences * kept.nbytes,
        allocated=kept.allocated,
    )


def peak_cache_bytes(spec: ModelSpec, tokens: int, batch: int = 1, dtype: str = "float32") -> int:
    """Bytes that a dynamic cache can reach on the way to `tokens`.

    Windows save nothing here: right after a long prefill, a sliding layer is a view of the whole prefill.
    """
    layers = tuple(replace(layer.as_stored, window=None) for layer in spec.layers)
    return kv_memory(replace(spec, layers=layers), tokens, batch=batch, dtype=dtype, view="hf-dynamic").total_bytes


def logits_bytes(spec: ModelSpec, batch: int = 1, dtype: str = "float32") -> int:
    """Bytes of one step's logits: batch x 1 position x vocabulary x element bytes."""
    return batch * (spec.vocab_size or 0) * DTYPE_BYTES[dtype]
