"""A design under transformers: its cache-layer base with one of ours inside, for each layer that keeps keys and values.

Layers of other kinds (linear attention, an indexer's, those that share another's) stay transformers' own.
"""

from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer

from kvviz.base.errors import KvvizError
from kvviz.caches.base import KVCache, Pair
from kvviz.caches.designs import Design


class Layer(CacheLayerMixin):
    """What transformers asks of a layer, answered by `own`."""

    is_croppable = True
    supports_early_init = False  # memory is made at the first append

    def __init__(self, own: KVCache, is_sliding: bool) -> None:
        super().__init__()
        self.own = own
        self.is_sliding = is_sliding

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Pair:
        self.is_initialized = True
        return self.own.append(key_states, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.own.span(query_length)

    def get_seq_length(self) -> int:
        return self.own.seen

    def get_max_length(self) -> int:
        return -1 if self.own.room is None else self.own.room

    def reset(self) -> None:
        self.own.free()
        self.is_initialized = False

    def crop(self, tokens_to_remove: int) -> None:
        self.own.crop(abs(tokens_to_remove))

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        self.own.reorder(beam_idx)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        self.own.reorder(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.own.shape is not None:
            rows = torch.arange(self.own.shape[0], device=self.own.device)
            self.own.reorder(rows.repeat_interleave(repeats))

    def offload(self) -> None:
        """Where it lies is the design's affair."""

    def prefetch(self) -> None:
        """Where it lies is the design's affair."""


class DesignCache(DynamicCache):
    """transformers' cache of a model's config, each of its key/value layers replaced by one of a design.

    Raises KvvizError where no layer of the model can be kept so.
    """

    def __init__(self, design: Design, config: Any, *, room: int | None = None) -> None:
        super().__init__(config=config)
        self.layers = [_under(design, layer, room) for layer in self.layers]
        if not self.own:
            raise KvvizError(f"no layer of this model keeps keys and values that {design.name} is for; take cached")

    @property
    def own(self) -> list[KVCache]:
        """The caches of the layers that the design keeps, in order."""
        return [layer.own for layer in self.layers if isinstance(layer, Layer)]

    def note(self, ids: torch.Tensor) -> None:
        """Tell the layers which tokens come, (B, T): the device is waited for."""
        rows = ids.tolist()
        for own in self.own:
            own.note(rows)

    def free(self) -> None:
        """Let go of everything."""
        self.reset()


def _under(design: Design, layer: Any, room: int | None) -> Any:
    if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer):
        return layer
    window = layer.sliding_window if type(layer) is DynamicSlidingWindowLayer else None
    if not design.takes(window):
        return layer
    return Layer(design.new(window=window, room=room), is_sliding=window is not None)
