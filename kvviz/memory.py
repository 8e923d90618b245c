"""Bytes of a cache, worked out from a ModelSpec: which tokens each layer holds, times what a token takes.

Standard library only. Every function names its view: whose bytes they are.
"""

from dataclasses import asdict, dataclass
from typing import Any

from kvviz.errors import ConfigError
from kvviz.spec import LayerSpec, ModelSpec

# Bytes of one element; the names are torch's.
DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


def held(layer: LayerSpec, tokens: int, view: str = "hf-dynamic") -> int:
    """Tokens that a layer holds once `tokens` have passed, while decoding.

    `architecture`: a window of W needs W. `hf-dynamic`: transformers' DynamicSlidingWindowLayer keeps W - 1,
    since the token being decoded comes on top (transformers/src/transformers/cache_utils.py).
    """
    if layer.kind in ("none", "shared"):
        return 0
    if layer.window is None:
        return tokens
    return min(tokens, layer.window - (view == "hf-dynamic"))


def layer_bytes(layer: LayerSpec, tokens: int, batch: int = 1, dtype: str = "float32", view: str = "hf-dynamic") -> int:
    """Bytes of one layer's keys and values: batch x tokens held x heads x (key dim + value dim) x element bytes."""
    return batch * held(layer, tokens, view) * layer.elements_per_token * DTYPE_BYTES[dtype]


@dataclass(frozen=True)
class LayerMemory:
    """One layer's cache, worked out or probed: its format, the tokens seen and held, their bytes."""

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


@dataclass(frozen=True)
class Memory:
    """A cache's bytes by layer, in one view. `method` says how they were found: spec (a formula) or probe."""

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

    @property
    def total_bytes(self) -> int:
        """Bytes of the tokens held, over all layers."""
        return sum(layer.nbytes for layer in self.layers)

    @property
    def reserved_bytes(self) -> int:
        """Bytes allocated, over all layers."""
        return sum(layer.allocated for layer in self.layers)

    @property
    def fixed_bytes(self) -> int:
        """Bytes that do not grow with tokens: the layers' states."""
        return sum(layer.state_bytes for layer in self.layers)

    def to_dict(self) -> dict[str, Any]:
        """The document of `calc` and `probe`."""
        data = asdict(self)
        for name in ("total_bytes", "reserved_bytes", "fixed_bytes"):
            data[name] = getattr(self, name)
        return data


VIEWS = ("architecture", "hf-dynamic")


def kv_memory(
    spec: ModelSpec,
    tokens: int,
    *,
    batch: int = 1,
    dtype: str = "bfloat16",
    view: str = "architecture",
    weights_bytes: int | None = None,
) -> Memory:
    """The cache of `spec` after `tokens` tokens: batch x tokens held x KV heads x (key + value dim) x element bytes.

    Raises ConfigError for a count, a dtype or a view that there is not.
    """
    if view not in VIEWS:
        raise ConfigError(f"view is {view!r}; it is one of {', '.join(VIEWS)}")
    if dtype not in DTYPE_BYTES:
        raise ConfigError(f"dtype is {dtype!r}; it is one of {', '.join(DTYPE_BYTES)}")
    for name, value in (("tokens", tokens), ("batch", batch)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**40:
            raise ConfigError(f"{name} is {value!r}; it is a whole number of at least 1")
    layers = tuple(_layer_memory(i, layer, tokens, batch, dtype, view) for i, layer in enumerate(spec.layers))
    more = cache_bytes(spec, tokens + 1, batch, dtype, view) - cache_bytes(spec, tokens, batch, dtype, view)
    return Memory(spec.name, spec.source, "spec", view, tokens, batch, dtype, layers, more, weights_bytes)


def _layer_memory(index: int, layer: LayerSpec, tokens: int, batch: int, dtype: str, view: str) -> LayerMemory:
    kept = held(layer, tokens, view)
    size = layer_bytes(layer, tokens, batch, dtype, view)
    return LayerMemory(
        index=index,
        kind=layer.kind,
        kv_heads=layer.kv_heads,
        key_dim=layer.key_dim,
        value_dim=layer.value_dim,
        window=layer.window,
        seen=tokens,
        held=kept,
        key_shape=(batch, layer.kv_heads, kept, layer.key_dim),
        value_shape=(batch, layer.kv_heads, kept, layer.value_dim),
        state_bytes=0,
        nbytes=size,
        # transformers' window is a view of W - 1 tokens into a storage of W
        allocated=layer_bytes(layer, tokens, batch, dtype, "architecture"),
    )


def cache_bytes(spec: ModelSpec, tokens: int, batch: int = 1, dtype: str = "float32", view: str = "hf-dynamic") -> int:
    """Bytes of the whole cache after `tokens` tokens: the sum over layers."""
    return sum(layer_bytes(layer, tokens, batch, dtype, view) for layer in spec.layers)


def peak_cache_bytes(spec: ModelSpec, tokens: int, batch: int = 1, dtype: str = "float32") -> int:
    """Bytes that a dynamic cache can reach on the way to `tokens`.

    A window's slack is not counted on: right after a long prefill a sliding layer is a view of the whole prefill.
    """
    elements = sum(layer.elements_per_token for layer in spec.layers if layer.kind not in ("none", "shared"))
    return batch * tokens * elements * DTYPE_BYTES[dtype]


def logits_bytes(spec: ModelSpec, batch: int = 1, dtype: str = "float32") -> int:
    """Bytes of one step's logits: batch x 1 position x vocabulary x element bytes."""
    return batch * (spec.vocab_size or 0) * DTYPE_BYTES[dtype]


def human(n: float) -> str:
    """Bytes in powers of 1024 with their unit: 28672 -> '28.0 KiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(n) < 1024:
            return f"{n:.0f} B" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.2f} TiB"
