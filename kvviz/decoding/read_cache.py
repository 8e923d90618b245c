"""Read caches of kvviz and of transformers after the clock has stopped; no tensor is copied or kept alive."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, reduce
from itertools import zip_longest
from typing import Any

import torch
from torch._ops import OpOverload
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kvviz.base.records import LayerState
from kvviz.caches.base import KVCache
from kvviz.device.clock import fastest_calls, synchroniser
from kvviz.device.multiply_adds import MultiplyAdds


def layer_states(
    cache: object, kinds: tuple[str, ...] = (), seen: int = 0, counted: Iterable[int] = ()
) -> tuple[LayerState, ...]:
    """Read one row per layer of a model's cache; an empty tuple for None. Rows of cross-attention come last.

    `kinds` names the layers if the model's spec knows more than the cache's classes (a latent layer is stored in a
    plain one). `seen` is the number of tokens so far, for layers that do not count them. `allocated` counts each
    storage once, at the first layer that uses it, and none of those `counted` before (`LiveTensors.made`).
    """
    own, cross = _groups(cache)
    known = set(counted)
    rows = [_layer_state(i, layer, kinds[i] if i < len(kinds) else None, seen, known) for i, layer in enumerate(own)]
    rows += [_layer_state(i, layer, "cross", 0, known) for i, layer in enumerate(cross)]
    return tuple(rows)


def cache_class(cache: object) -> str | None:
    """Name the class of a run's cache, or of its layers if it is a list of layer objects; None for None."""
    own = [layer.own for layer in getattr(cache, "layers", ()) if isinstance(getattr(layer, "own", None), KVCache)]
    if own:
        return type(own[0]).__name__
    first = cache[0] if isinstance(cache, list) and cache else None
    layered = hasattr(first, "append") and not isinstance(first, list)
    return None if cache is None else type(first if layered else cache).__name__


def whereabouts(cache: object) -> str | None:
    """Name a cache's class and the way from it to the keys of the first layer that has any; None where none has.

    Such as 'DynamicCache → layers[0].keys'. The way to a design that keeps no such tensor ends at the design's object.
    """
    of, crossing = cache_class(cache), hasattr(cache, "cross_attention_cache")
    own = getattr(cache, "self_attention_cache", None) if crossing else cache
    head = type(cache).__name__ + (f" of {of}" if of != type(cache).__name__ else "")
    lists = {"": own} if isinstance(own, list | tuple) else {name: getattr(own, name, ()) for name in _PER_LAYER}
    for name, layers in lists.items():
        for number, layer in enumerate(() if isinstance(layers, Mapping) else layers):
            for way in _TO_KEYS:
                if isinstance(_follow(layer, way), torch.Tensor | KVCache):
                    return f"{head} → {'self_attention_cache.' * crossing}{name}[{number}].{way}"
    return None


def _follow(thing: object, way: str) -> object:
    """Follow the names of attributes with dots between them; None if one is missing."""
    return reduce(lambda at, name: getattr(at, name, None), way.split("."), thing)


def _groups(cache: object) -> tuple[Sequence[object], Sequence[object]]:
    """Split a cache into the layers of self-attention and those of cross-attention, if any."""
    if not hasattr(cache, "cross_attention_cache"):
        return _layers(cache), []
    cross = _layers(cache.cross_attention_cache)
    return _layers(getattr(cache, "self_attention_cache", None)), cross if any(map(_tensors, cross)) else []


_TO_KEYS = ("keys", "k", "_quantized_keys", "own.keys", "own")
# Attributes with one item per layer: a list, or a dict by layer number. MiniMax's cache has two of them.
_PER_LAYER = ("layers", "linear_cache", "rnn_state")


def _layers(cache: object) -> Sequence[object]:
    """List one object, or one list of objects, per layer. A cache that is a list already has one item per layer."""
    if cache is None or isinstance(cache, list | tuple):
        return list(cache or ())
    if hasattr(cache, "states_cache") and hasattr(cache, "buckets_cache"):
        # Reformer's cache holds hidden states (B, T, hidden) and the buckets that they hash to
        pairs = zip(cache.states_cache, cache.buckets_cache, strict=False)
        return [{"keys": states[:, None], "buckets": buckets} for states, buckets in pairs]
    kept = [getattr(cache, name) for name in _PER_LAYER if hasattr(cache, name)]
    lists = [list(one.values()) if isinstance(one, Mapping) else list(one) for one in kept]
    return lists[0] if len(lists) == 1 else [list(parts) for parts in zip_longest(*lists)]


def _layer_state(index: int, layer: object, kind: str | None, seen: int, counted: set[int]) -> LayerState:
    own = getattr(layer, "own", layer)
    if isinstance(own, KVCache):
        return _own_state(index, own, kind, counted)
    tensors = _tensors(layer)
    state = {name: tensor for name, tensor in tensors.items() if name.split(".")[0] not in _KEY_VALUE}
    keys, values = tensors.get("keys"), tensors.get("values")  # if one tensor serves as both, it counts as the keys
    kept = keys.shape[-2] if keys is not None else 0
    seen = _counted(layer) or seen or kept
    return LayerState(
        index=index,
        kind=kind or _kind(layer, tensors, state),
        key_shape=tuple(keys.shape) if keys is not None else (),
        value_shape=tuple(values.shape) if values is not None else (),
        dtype=str(next(iter(tensors.values())).dtype).removeprefix("torch.") if tensors else "",
        seen=seen,
        held=seen if "_quantized_keys" in tensors else kept,  # the backend chooses the layout of quantized tensors
        nbytes=sum(tensor.nbytes for tensor in tensors.values()),
        allocated=_allocated((tensor.untyped_storage() for tensor in tensors.values()), counted),
        state_bytes=sum(tensor.nbytes for tensor in state.values()),
    )


def _own_state(index: int, own: KVCache, kind: str | None, counted: set[int]) -> LayerState:
    """Read a cache of kvviz's own, which knows what it keeps; shapes are those of the tokens held."""
    shape = own.shape
    return LayerState(
        index=index,
        kind=kind or ("none" if shape is None else "full" if own.window is None or not own.exact else "sliding"),
        key_shape=(*shape[:2], own.held, shape[2]) if shape else (),
        value_shape=(*shape[:2], own.held, shape[3]) if shape else (),
        dtype=own.stored_as if shape else "",
        seen=own.seen,
        held=own.held,
        nbytes=own.nbytes,
        allocated=_allocated(own.storages(), counted),
        state_bytes=own.beside_bytes,
    )


# Parts of the names under which layers keep an index for selecting tokens, or a digest of evicted ones.
_INDEXES = ("index", "idx", "bucket", "compress", "buffer")
# Attributes of a layer that hold keys and values; anything else it holds is its state.
_KEY_VALUE = ("keys", "values", "_quantized_keys", "_quantized_values")
_SHORT = {"k": "keys", "v": "values"}  # the names in kvviz.decoding.scratch.cache


def _tensors(layer: object) -> dict[str, torch.Tensor]:
    """Collect a layer's tensors, each once, by attribute (and key, in a dict)."""
    found: dict[str, torch.Tensor] = {}
    for name, tensor in _walk(layer, ""):
        if not any(tensor is other for other in found.values()):
            found[name if name not in found else f"{name}.{len(found)}"] = tensor
    return {name: _filled(layer, name, found[name]) for name in sorted(found, key=lambda name: name not in _KEY_VALUE)}


def _walk(thing: object, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every tensor with at least two dimensions below an object; counters have fewer."""
    if isinstance(thing, torch.Tensor):
        if hasattr(thing, "__tensor_flatten__"):  # quantized tensors consist of plain ones
            thing = [getattr(thing, part) for part in thing.__tensor_flatten__()[0]]
        elif thing.dim() > 1 and thing.numel():
            yield name, thing
    if isinstance(thing, Mapping):
        for key, item in thing.items():
            yield from _walk(item, f"{name}.{key}".strip("."))
    elif isinstance(thing, list | tuple):
        for item in thing:
            yield from _walk(item, name)
    elif not name and hasattr(thing, "__dict__"):
        for key, item in vars(thing).items():
            yield from _walk(item, _SHORT.get(str(key), str(key)) if hasattr(thing, "append") else str(key))


def _filled(layer: object, name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Select the part of a tensor that holds tokens; a static layer has capacity for more."""
    slots = getattr(layer, "max_cache_len", None)
    return tensor if slots is None or name not in _KEY_VALUE else tensor[..., : min(slots, _counted(layer)), :]


def _allocated(storages: Iterable[torch.UntypedStorage], counted: set[int]) -> int:
    sizes = {storage._cdata: storage.nbytes() for storage in storages}
    total = sum(size for key, size in sizes.items() if key not in counted)
    counted.update(sizes)
    return total


def _counted(layer: object) -> int:
    """Number of tokens that a layer has counted; 0 for a layer that does not count."""
    for part in layer if isinstance(layer, list) else [layer]:
        if hasattr(part, "get_seq_length"):
            return int(part.get_seq_length())
    return 0


def _kind(layer: object, tensors: Mapping[str, torch.Tensor], state: Mapping[str, torch.Tensor]) -> str:
    """Derive a layer's kind from what it keeps; a layer that keeps nothing is `none`."""
    if not tensors:
        return "none"
    if len(state) == len(tensors):
        return "linear"
    if state:
        if any("compressed" in name for name in state):
            return "compressed"
        return "indexed" if any(word in name for name in state for word in _INDEXES) else "hybrid"
    return "sliding" if getattr(layer, "is_sliding", False) else "full"


class LiveTensors(TorchDispatchMode):
    """Records every tensor that an operation makes inside `with`; `live_bytes` counts those that are still alive.

    This checks a run that claims to keep nothing: it records all tensors of the run, whatever made them, and relies on
    the storages' own reference counts. It costs microseconds per operation, so it never runs under the clock. The
    `known` tensors, such as a model's weights, do not count.
    """

    def __init__(self, known: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()
        self._known = {tensor.untyped_storage()._cdata for tensor in known}
        self._made: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        out = func(*args, **(kwargs or {}))
        for leaf in (out,) if isinstance(out, torch.Tensor) else tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self._note(leaf)
        return out

    def _note(self, tensor: torch.Tensor) -> None:
        if tensor.dtype is torch.int64:  # token ids are not keys or values
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._known and key not in self._made:  # a weak reference keeps the address from being reused
            self._made[key] = (StorageWeakRef(storage), storage.nbytes())

    @property
    def made(self) -> Iterable[int]:
        """The storages recorded so far, by their addresses; after `live_bytes` they are those alive."""
        return self._made

    def live_bytes(self, *apart: torch.Tensor) -> int:
        """Count the live tensor bytes: recorded storages still alive, except those of the tensors `apart` (logits)."""
        others = {tensor.untyped_storage()._cdata for tensor in apart}
        self._made = {key: made for key, made in self._made.items() if not made[0].expired()}
        return sum(size for key, (_, size) in self._made.items() if key not in others)


@cache
@torch.inference_mode()
def tracing_seconds(device: str) -> float:
    """Measure, once per process, how much longer an operation takes inside LiveTensors.

    The operations are those of a layer so narrow that their arithmetic costs nothing.
    """
    row, matrix = torch.ones(1, 1, 16, device=device), torch.ones(48, 16, device=device)
    kept, sync = torch.ones(1, 2, 5, 8, device=device), synchroniser(device)

    def layers() -> None:
        for _ in range(8):
            parts = functional.linear(functional.layer_norm(row, (16,)), matrix).split(16, dim=-1)
            q, k, v = (part.view(1, 1, 2, 8).transpose(1, 2) for part in parts)
            k, v = torch.cat([kept, k], dim=2), torch.cat([kept, v], dim=2)
            mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(1, 1, 16)
            functional.gelu(row + functional.linear(mixed, matrix[:16]))

    with MultiplyAdds() as counter:
        layers()

    def traced() -> None:
        with LiveTensors():
            layers()

    best = fastest_calls({"plain": layers, "traced": traced}, sync, 0.02)
    return max(0.0, best["traced"] - best["plain"]) / counter.operations
