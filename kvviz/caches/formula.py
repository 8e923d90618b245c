"""What a design keeps of a sequence, worked out from the model's layers, and why figures of its bytes differ.

Standard library only. Layers that a design does not take are kept as transformers keeps them (view hf-dynamic).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kvviz.base.errors import ConfigError, KvvizError
from kvviz.base.precision import precision
from kvviz.caches.designs import DESIGNS, EVERY_TOKEN, RING, ByteRule, Design
from kvviz.memory.engine_views import Case, state_bytes, view_named
from kvviz.models.layers import LayerSpec
from kvviz.models.spec import ModelSpec

GROWING = ("full", "latent", "sliding", "chunked")  # kinds of layers that a design can keep


@dataclass(frozen=True)
class _Rule:
    """What a Design says of its bytes, for a cache that is not one of kvviz's designs."""

    nbytes: ByteRule
    slack: str
    formula: str = ""


_WHOLE_RUN = "the buffer has room for all tokens of the run from the start"
_RULES: Mapping[str, Design | _Rule] = {
    **DESIGNS,
    "static": _Rule(RING, _WHOLE_RUN),
    "compiled": _Rule(EVERY_TOKEN, _WHOLE_RUN),
    "quantized": _Rule(
        lambda layer, n, case: n * layer.kv_heads * (layer.key_dim + layer.value_dim),
        "a tensor is part of a longer one",
        "layers × sequences × KV heads × tokens × (K dim + V dim) × 1 byte",
    ),
}


def _takes(mode: str, layer: LayerSpec) -> bool:
    return layer.kind in GROWING and (mode not in DESIGNS or DESIGNS[mode].takes(layer.window))


def kept_bytes(mode: str, spec: ModelSpec, tokens: int, batch: int, dtype: str) -> int | None:
    """Bytes that a mode keeps after `tokens` tokens of each sequence, over all layers; None if it has no rule."""
    if mode not in _RULES:
        return None
    case = Case(tokens, tokens, precision(dtype), spec.state_float32)
    theirs = view_named("hf-dynamic").keep(spec.layers, case)
    stored = [layer.as_stored for layer in spec.layers]
    nbytes = _RULES[mode].nbytes
    return batch * sum(
        nbytes(layer, tokens, case) + state_bytes(layer, case.precision) if _takes(mode, layer) else kept.nbytes
        for layer, kept in zip(stored, theirs, strict=True)
    )


def _stored_layers(config: Mapping[str, object]) -> list[LayerSpec]:
    """The layers of a config's model as transformers stores them; none if the config can't be read."""
    try:
        return [layer.as_stored for layer in ModelSpec.from_config(dict(config)).layers]
    except ConfigError:
        return []


def check_design(mode: str, config: Mapping[str, object]) -> None:
    """Raise KvvizError if a design could keep no layer of a model. A config that can't be read passes."""
    layers = _stored_layers(config)
    if not layers or any(_takes(mode, layer) for layer in layers):
        return
    windows = [layer.window for layer in layers if layer.kind in GROWING and layer.window is not None]
    if not windows:
        raise KvvizError(f"no layer of this model keeps keys and values that {mode} is for; take cached")
    least = DESIGNS[mode].least
    wanted = f"that look back further than {least} tokens" if least else "that look at everything"
    raise KvvizError(
        f"each layer of this model has a window of {max(windows):,} tokens of its own, and {mode} is for layers "
        f"{wanted}; take paged or prealloc"
    )


def check_all_full(mode: str, config: Mapping[str, object]) -> None:
    """Raise KvvizError for a model with a layer that transformers' QuantizedCache does not take."""
    others = sorted({layer.kind for layer in _stored_layers(config)} - {"full", "latent"})
    if others:
        raise KvvizError(
            f"transformers' QuantizedCache takes models whose layers all look at everything; this one has layers of "
            f"kind {', '.join(others)}: take int8"
        )


_USUAL_SLACK = "capacity for tokens to come, or a window that is a view of a longer tensor until the next step"


def has_own_formula(mode: str) -> bool:
    """Whether a mode's bytes follow another formula than tokens held times the bytes of a token."""
    return mode in _RULES and bool(_RULES[mode].formula)


def reasons(mode: str, figures: Mapping[str, int], kept: int | None, device: str) -> list[str]:
    """Sentences: the mode's own formula if it has one, and the reason for each difference between the figures.

    `figures` are `formula`, `tensors` and `storages`, in bytes; `kept` is the allocator's figure, None if it has none.
    """
    rule = _RULES.get(mode)
    formula, tensors, storages = (figures[name] for name in ("formula", "tensors", "storages"))
    sentences = [f"By formula: {rule.formula} = {formula:,} B."] if rule and rule.formula else []
    if tensors < formula and mode == "prefix":
        sentences.append(
            f"Shared blocks are kept once: the formula, which counts each sequence, says {formula - tensors:,} B more."
        )
    elif tensors != formula:
        sentences.append("Formula and tensors differ: this model keeps its cache in another way than its config says.")
    if storages > tensors:
        sentences.append(f"The tensors lie in storages of {storages:,} B: {rule.slack if rule else _USUAL_SLACK}.")
    if kept is None:
        sentences.append("This device's allocator gives no account.")
    elif kept != storages:
        sentences.append(_allocators(mode, kept - storages, device))
    return sentences


def _allocators(mode: str, more: int, device: str) -> str:
    """Why the allocator's figure differs from the storages."""
    if mode == "offloaded":
        return f"The device's allocator counts {more:+,} B beside: the cache lies in the host's memory."
    if device.startswith("cuda"):
        return f"The allocator gives whole blocks: {more:+,} B beside what was asked for."
    return f"The cache object keeps {more:+,} B of its own counters and scales beside keys and values."
