"""Reading caches that kvviz did not define: a cache object in, one LayerState per layer out.

Called after the clock has stopped. Nothing here copies a tensor or keeps one alive.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kvviz.records import LayerState


def snapshot(cache: Any, kinds: tuple[str, ...] = ()) -> tuple[LayerState, ...]:
    """One row per layer of a transformers cache; an empty tuple for None.

    `kinds` names the layers where the model's spec knows more than the cache's classes do (a latent layer is
    stored in a plain one). `allocated` counts each storage once, at the first layer that uses it.
    """
    if cache is None:
        return ()
    counted: set[int] = set()
    return tuple(
        _layer_state(index, layer, kinds[index] if index < len(kinds) else None, counted)
        for index, layer in enumerate(cache.layers)
    )


def _layer_state(index: int, layer: Any, kind: str | None, counted: set[int]) -> LayerState:
    tensors = list(_tensors(layer))
    keys, values = _stored(layer, "keys"), _stored(layer, "values")
    return LayerState(
        index=index,
        kind=kind or _kind(layer),
        key_shape=tuple(keys.shape) if keys is not None else (),
        value_shape=tuple(values.shape) if values is not None else (),
        dtype=str(keys.dtype if keys is not None else tensors[0].dtype).removeprefix("torch.") if tensors else "",
        seen=_seen(layer),
        held=keys.shape[-2] if keys is not None else 0,
        nbytes=sum(t.numel() * t.element_size() for t in tensors),
        allocated=_allocated(tensors, counted),
    )


def _stored(layer: Any, name: str) -> torch.Tensor | None:
    tensor = getattr(layer, name, None)
    return tensor if isinstance(tensor, torch.Tensor) and tensor.dim() == 4 else None


def _tensors(layer: Any) -> Iterator[torch.Tensor]:
    """The tensors in which a layer keeps what it has seen, each once."""
    found: dict[int, torch.Tensor] = {}
    for name in ("keys", "values", "conv_states", "recurrent_states", "indexer_keys"):
        for leaf in tree_leaves(getattr(layer, name, None)):
            if isinstance(leaf, torch.Tensor) and leaf.numel():
                found[id(leaf)] = leaf
    return iter(found.values())


def _allocated(tensors: list[torch.Tensor], counted: set[int]) -> int:
    total = 0
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage._cdata not in counted:
            counted.add(storage._cdata)
            total += storage.nbytes()
    return total


def _seen(layer: Any) -> int:
    seen = getattr(layer, "get_seq_length", lambda: 0)()
    return int(seen)


def _kind(layer: Any) -> str:
    if getattr(layer, "is_sliding", False):
        return "sliding"
    return "full" if hasattr(layer, "keys") else "linear"


class Outliving(TorchDispatchMode):
    """Inside `with`, notes every tensor that an operation makes; `survivors` tells which of all noted still live.

    This is how a run that claims to hold nothing is checked: it notes all tensors of a run, whatever made them, and
    asks the storages' own reference counts. Costs microseconds an operation, so it is used untimed. `known` tensors,
    a model's weights, are none of the run's.
    """

    def __init__(self, known: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()
        self._known = {tensor.untyped_storage()._cdata for tensor in known}
        self._made: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **kwargs) if kwargs else func(*args)
        if isinstance(out, torch.Tensor):
            self._note(out)
        else:
            for leaf in tree_leaves(out):
                if isinstance(leaf, torch.Tensor):
                    self._note(leaf)
        return out

    def _note(self, tensor: torch.Tensor) -> None:
        if tensor.dtype is torch.int64:  # token ids are not K/V
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._known and key not in self._made:  # a noted one keeps its address until it is dropped
            self._made[key] = (StorageWeakRef(storage), storage.nbytes())

    def survivors(self, *apart: torch.Tensor) -> int:
        """Bytes of the noted storages that are still alive, those of the tensors `apart` (logits) not counted."""
        others = {tensor.untyped_storage()._cdata for tensor in apart}
        self._made = {key: made for key, made in self._made.items() if not made[0].expired()}
        return sum(size for key, (_, size) in self._made.items() if key not in others)
