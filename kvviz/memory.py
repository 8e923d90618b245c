"""Bytes of a cache, worked out from a ModelSpec: which tokens each layer holds, times what a token takes.

Standard library only. Every function names its view: whose bytes they are.
"""

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
