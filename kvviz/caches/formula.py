"""What a mode keeps of a sequence, worked out from the model's layers, and why figures of its bytes differ.

Layers that a design does not take are kept as transformers keeps them (view hf-dynamic).
"""

from collections.abc import Mapping

from kvviz.base.errors import ConfigError, KvvizError
from kvviz.base.precision import precision
from kvviz.base.records import SPLIT
from kvviz.caches.designs import Account, Design
from kvviz.memory.engine_views import state_bytes
from kvviz.memory.formula import kv_memory
from kvviz.models.layers import LayerSpec
from kvviz.models.spec import ModelSpec

GROWING = ("full", "latent", "sliding", "chunked")  # kinds of layers that a design can keep


def _takes(row: Account, layer: LayerSpec) -> bool:
    if isinstance(row, Design) and row.queries and layer.kind == "latent":
        return False  # its queries can't be multiplied with latent rows
    return layer.kind in GROWING and row.takes(layer.window)


def kept_bytes(row: Account, spec: ModelSpec, tokens: int, batch: int, dtype: str) -> int:
    """Bytes that a mode keeps after `tokens` tokens of each sequence, over all layers."""
    element, stored = precision(dtype), [layer.as_stored for layer in spec.layers]
    theirs = kv_memory(spec, tokens, dtype=dtype, view="hf-dynamic").layers
    total, taken = 0, [i for i, layer in enumerate(stored) if row.nbytes and _takes(row, layer)]
    for i, (layer, kept) in enumerate(zip(stored, theirs, strict=True)):
        own = row.in_layer(taken.index(i), len(taken)) if i in taken else None
        if own is None or own.nbytes is None:
            total += kept.nbytes
            continue
        total += own.nbytes(layer, tokens, element) + state_bytes(layer, element)
        if isinstance(own, Design) and own.queries:
            heads = spec.heads or layer.kv_heads
            total += min(tokens, own.at_once) * heads * element.row(layer.key_dim, 1)
    return batch * total


def _stored_layers(config: Mapping[str, object]) -> list[LayerSpec]:
    """The layers of a config's model as transformers stores them; none if the config can't be read."""
    try:
        return [layer.as_stored for layer in ModelSpec.from_config(dict(config)).layers]
    except ConfigError:
        return []


def check_design(design: Design, config: Mapping[str, object]) -> None:
    """Raise KvvizError if a design could keep no layer of a model. A config that can't be read passes."""
    layers, mode, least = _stored_layers(config), design.name, design.least
    if not layers or any(_takes(design, layer) for layer in layers):
        return
    windows = [layer.window for layer in layers if layer.kind in GROWING and layer.window is not None]
    if not windows and any(layer.kind == "hybrid" for layer in layers):
        raise KvvizError(
            f"layers of this model keep a recurrent state beside their keys and values, in a cache of their own that "
            f"{mode} can't take the place of; take cached"
        )
    if not windows:
        raise KvvizError(f"no layer of this model keeps keys and values that {mode} is for; take cached")
    wanted = f"that look back further than {least} tokens" if least else "that look at everything"
    raise KvvizError(
        f"each layer of this model has a window of {max(windows):,} tokens of its own, and {mode} is for layers "
        f"{wanted}; take paged or prealloc"
    )


def check_all_full(
    config: Mapping[str, object], what: str = "transformers' QuantizedCache", instead: str = "int8"
) -> None:
    """Raise KvvizError unless all layers look at everything, which `what` needs; the mode `instead` does not."""
    others = sorted({layer.kind for layer in _stored_layers(config)} - {"full", "latent"})
    if others:
        raise KvvizError(
            f"{what} takes models whose layers all look at everything; this one has layers of kind "
            f"{', '.join(others)}: take {instead}"
        )


def reasons(
    row: Account, figures: Mapping[str, int], kept: int | None, device: str, counted: int | None = None
) -> list[str]:
    """Sentences: the mode's own formula if it has one, and the reason for each difference between the figures.

    `figures` are `formula`, `tensors` and `storages`, in bytes; `kept` is the allocator's figure, None if it has none.
    It counts a run with another prefill, whose storages have `counted` bytes (None: as many as `storages`).
    """
    formula, tensors, storages = (figures[name] for name in ("formula", "tensors", "storages"))
    sentences = [f"By formula: {row.formula} = {formula:,} B."] if row.formula else []
    if tensors < formula and row.less:
        sentences.append(f"{row.less} says {formula - tensors:,} B more.")
    elif tensors > formula and row.more:
        sentences.append(f"{row.more} holds {tensors - formula:,} B more.")
    elif tensors != formula:
        sentences.append("Formula and tensors differ: this model keeps its cache in another way than its config says.")
    if storages > tensors:
        sentences.append(f"The tensors lie in storages of {storages:,} B: {row.slack}.")
    if kept is None:
        several = "The model is split, and no allocator sees all of its places, so none gives an account."
        sentences.append(several if device == SPLIT else "This device's allocator gives no account.")
        return sentences
    counted = storages if counted is None else counted
    if counted != storages:
        sentences.append(
            "The allocator counts a run that prefills all tokens but the last at once, "
            f"whose storages take {abs(counted - storages):,} B {'more' if counted > storages else 'less'}."
        )
    if kept != counted:
        sentences.append(_allocators(row, kept - counted, device))
    return sentences


def _allocators(row: Account, more: int, device: str) -> str:
    """Why the allocator's figure differs from the storages."""
    if row.elsewhere:
        return f"The device's allocator counts {more:+,} B beside: the cache lies in {row.elsewhere}."
    if row.beside and device != "cpu":
        return f"The device's allocator counts {more:+,} B beside: {row.beside}."
    return f"The cache object keeps {more:+,} B of its own counters and scales beside keys and values."
