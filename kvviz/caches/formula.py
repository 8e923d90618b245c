"""What a design keeps of a sequence, worked out from the model's layers, and why figures of its bytes differ.

Standard library only. Layers that a design does not take are kept as transformers keeps them (view hf-dynamic).
"""

from collections.abc import Callable, Mapping

from kvviz.base.errors import ConfigError, KvvizError
from kvviz.base.precision import precision
from kvviz.caches.designs import DESIGNS
from kvviz.memory.views import Case, state_bytes, token_bytes, view_named
from kvviz.models.layers import LayerSpec
from kvviz.models.spec import ModelSpec

BLOCK, SINKS, WINDOW, GROUP, RESIDUAL = 16, 4, 60, 32, 32  # tests hold them to those of the designs
GROWING = ("full", "latent", "sliding", "chunked")  # kinds of layers that a design can keep


def _behind(n: int, window: int | None) -> int:
    """Tokens that nothing to come can look back at."""
    return 0 if window is None else max(0, n - window + 1)


def _all(n: int, window: int | None) -> int:
    return n - _behind(n, window)


def _ring(n: int, window: int | None) -> int:
    return n if window is None else min(n, window)


def _blocks(n: int, window: int | None) -> int:
    return n - _behind(n, window) // BLOCK * BLOCK


def _sinks(n: int, window: int | None) -> int:
    return min(n, SINKS + WINDOW)


def _as_floats(held: Callable[[int, int | None], int]) -> Callable[[LayerSpec, int, Case], int]:
    return lambda layer, n, case: held(n, layer.window) * token_bytes(layer, case.precision)


def _codes(bits: int) -> Callable[[LayerSpec, int, Case], int]:
    """Groups of codes, 2 x 2 bytes of scale and zero for each channel of a group and each token, and the newest."""

    def count(layer: LayerSpec, n: int, case: Case) -> int:
        groups = max(0, (n - RESIDUAL) // GROUP)
        newest = n - groups * GROUP
        groups -= min(groups, _behind(n, layer.window) // GROUP)
        codes = groups * GROUP * (layer.key_dim + layer.value_dim) * bits // 8
        scales = 4 * groups * (layer.key_dim + GROUP)
        return layer.kv_heads * (codes + scales) + newest * token_bytes(layer, case.precision)

    return count


def _bytes_each(layer: LayerSpec, n: int, case: Case) -> int:
    return n * layer.kv_heads * (layer.key_dim + layer.value_dim)


# Bytes of one layer and one sequence after n tokens.
_RULES: Mapping[str, Callable[[LayerSpec, int, Case], int]] = {
    "concat": _as_floats(_all),
    "prealloc": _as_floats(_ring),
    "paged": _as_floats(_blocks),
    "prefix": _as_floats(_blocks),
    "sinks": _as_floats(_sinks),
    "int8": _codes(8),
    "int4": _codes(4),
    "offloaded": _as_floats(_all),
    "static": _as_floats(_ring),
    "compiled": _as_floats(_all),
    "quantized": _bytes_each,
}


def _taken(mode: str, layer: LayerSpec) -> bool:
    return layer.kind in GROWING and (mode not in DESIGNS or DESIGNS[mode].takes(layer.window))


def kept_bytes(mode: str, spec: ModelSpec, tokens: int, batch: int, dtype: str) -> int | None:
    """Bytes that a mode keeps after `tokens` tokens of each sequence, over all layers; None where there is no rule."""
    if mode not in _RULES:
        return None
    case = Case(tokens, tokens, precision(dtype), spec.state_float32)
    theirs = view_named("hf-dynamic").keep(spec.layers, case)
    stored = [layer.as_stored for layer in spec.layers]
    return batch * sum(
        _RULES[mode](layer, tokens, case) + state_bytes(layer, case.precision) if _taken(mode, layer) else kept.nbytes
        for layer, kept in zip(stored, theirs, strict=True)
    )


def check_design(mode: str, config: Mapping) -> None:
    """Raise KvvizError where a model has no layer that a mode could keep its way. An unreadable config passes."""
    try:
        layers = [layer.as_stored for layer in ModelSpec.from_config(dict(config)).layers]
    except ConfigError:
        return
    if any(_taken(mode, layer) for layer in layers):
        return
    windows = {layer.window for layer in layers if layer.kind in GROWING}
    if windows:
        raise KvvizError(
            f"each layer of this model has a window of {max(windows):,} tokens of its own, and {mode} is for layers "
            f"{_wanted(mode)}; take paged or prealloc"
        )
    raise KvvizError(f"no layer of this model keeps keys and values that {mode} is for; take cached")


def _wanted(mode: str) -> str:
    least = DESIGNS[mode].least
    return f"that look back further than {least} tokens" if least else "that look at everything"


def check_all_full(mode: str, config: Mapping) -> None:
    """Raise KvvizError for a model with a layer that transformers' QuantizedCache does not take."""
    try:
        kinds = {layer.as_stored.kind for layer in ModelSpec.from_config(dict(config)).layers}
    except ConfigError:
        return
    others = sorted(kinds - {"full", "latent"})
    if others:
        raise KvvizError(
            f"transformers' QuantizedCache takes models whose layers all look at everything; this one has layers of "
            f"kind {', '.join(others)}: take int8"
        )


# --- why figures differ -------------------------------------------------------------------------------------------

_SLACK = {
    "concat": "a window is a view of a longer tensor until the next step",
    "prealloc": "the buffer has room for all tokens of the run from the start, and a window's for a whole window",
    "paged": "the last block of each sequence is not full, and blocks that were given back are kept for the next",
    "prefix": "the last block of each sequence is not full, and blocks that nobody uses are kept for the next text "
    "that begins alike",
    "sinks": "the ring is made at once for all its tokens",
    "int8": "the newest tokens lie in a longer tensor until the next step",
    "int4": "the newest tokens lie in a longer tensor until the next step",
    "offloaded": "the buffer in the host's memory has room for all tokens of the run from the start",
    "static": "the buffer has room for all tokens of the run from the start",
    "compiled": "the buffer has room for all tokens of the run from the start",
    "quantized": "a tensor is part of a longer one",
}
_SCALES = (
    "with 4 bytes of scale and zero for each channel of a group of keys and for each token of values; "
    f"the newest {RESIDUAL} to {RESIDUAL + GROUP - 1} tokens as they came"
)
# Where there is none, the usual one holds: tokens held times what each takes.
_RULE_WORDS = {
    "int8": f"groups of {GROUP} tokens at 1 byte a number, {_SCALES}",
    "int4": f"groups of {GROUP} tokens at half a byte a number, {_SCALES}",
    "sinks": f"layers × sequences × KV heads × min(tokens, {SINKS} + {WINDOW}) × (K dim + V dim) × bytes",
    "quantized": "layers × sequences × KV heads × tokens × (K dim + V dim) × 1 byte",
}


def reasons(mode: str, figures: Mapping[str, int], kept: int | None, device: str) -> list[str] | None:
    """Sentences: a formula of its own, and the reason for each difference between the figures; None without a rule.

    `figures` are `formula`, `tensors` and `storages`, in bytes; `kept` is what the allocator says, None where nothing.
    """
    if mode not in _RULES:
        return None
    formula, tensors, storages = (figures[name] for name in ("formula", "tensors", "storages"))
    found = [f"By formula: {_RULE_WORDS[mode]} = {formula:,} B."] if mode in _RULE_WORDS else []
    if tensors < formula and mode == "prefix":
        found.append(
            f"Shared blocks are kept once: the formula, which counts each sequence, says {formula - tensors:,} B more."
        )
    elif tensors != formula:
        found.append("Formula and tensors differ: this model's cache is kept in another way than the config says.")
    if storages > tensors:
        found.append(f"The tensors lie in storages of {storages:,} B: {_SLACK[mode]}.")
    if kept is None:
        found.append("This device's allocator gives no account.")
    elif kept != storages:
        found.append(_allocators(mode, kept - storages, device))
    return found


def _allocators(mode: str, more: int, device: str) -> str:
    if mode == "offloaded":
        return f"The device's allocator counts {more:+,} B beside: the cache lies in the host's memory."
    if device.startswith("cuda"):
        return f"The allocator gives whole blocks: {more:+,} B beside what was asked for."
    return f"The cache object keeps {more:+,} B of its own counters and scales beside keys and values."
