"""A design under transformers: each layer that keeps keys and values becomes one of ours, with transformers' methods.

Layers of other kinds (linear attention, an indexer's, those that share another's) stay transformers' own.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from transformers import DynamicCache, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer

from kvviz.base.errors import KvvizError
from kvviz.caches.attention import Watch
from kvviz.caches.base import KVCache, Pair
from kvviz.caches.designs import Design
from kvviz.caches.evicting import Evicting


class Layer(CacheLayerMixin):
    """Everything that transformers calls on a layer, passed on to `own`."""

    is_croppable = True
    supports_early_init = False  # memory is allocated at the first append

    def __init__(self, own: KVCache, is_sliding: bool) -> None:
        super().__init__()
        self.own = own
        self.is_sliding = is_sliding

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object) -> Pair:
        self.is_initialized = True
        return self.own.append(key_states, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.own.span(query_length)

    def get_seq_length(self) -> int:
        return self.own.seen

    def get_max_length(self) -> int:
        return -1 if self.own.capacity is None else self.own.capacity

    def reset(self) -> None:
        self.own.free()
        self.is_initialized = False

    def crop(self, tokens_to_remove: int) -> None:
        self.own.crop(abs(tokens_to_remove))

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        self.own.reorder(beam_idx)

    batch_select_indices = reorder_cache

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.own.shape is not None:
            rows = torch.arange(self.own.shape[0], device=self.own.device)
            self.own.reorder(rows.repeat_interleave(repeats))

    def offload(self) -> None:
        """Do nothing: the design decides where its memory lies."""

    prefetch = offload


class DesignCache(DynamicCache):
    """transformers' cache for a model's config, with a design in place of each key/value layer that it takes.

    Raises KvvizError if the design can keep no layer of the model.
    """

    layers: list[CacheLayerMixin]

    def __init__(self, design: Design, config: PreTrainedConfig, *, capacity: int | None = None) -> None:
        super().__init__(config=config)
        self.layers = [_layer_for(design, layer, capacity) for layer in self.layers]
        for number, own in enumerate(self.own):
            own.number = number
        if not self.own:
            raise KvvizError(f"no layer of this model keeps keys and values that {design.name} is for; take cached")

    @property
    def own(self) -> list[KVCache]:
        """The caches of the layers that the design keeps, in order."""
        return [layer.own for layer in self.layers if isinstance(layer, Layer)]

    def watching(self, model: PreTrainedModel) -> Callable[[], AbstractContextManager[None]]:
        """Return what each forward of the model with this cache has to run in: `with watch(): model(...)`.

        There a design that evicts by the weights of attention sees them; for any other design it does nothing.
        """
        evicting = {
            index: layer.own
            for index, layer in enumerate(self.layers)
            if isinstance(layer, Layer) and isinstance(layer.own, Evicting)
        }
        return Watch(model, evicting) if evicting else nullcontext

    def note(self, ids: torch.Tensor) -> None:
        """Tell the layers which tokens come, (B, T); this waits for the device."""
        rows = ids.tolist()
        for own in self.own:
            own.note(rows)


def _layer_for(design: Design, layer: CacheLayerMixin, capacity: int | None) -> CacheLayerMixin:
    """A layer of the design in place of transformers' own, which stays if the design does not take it."""
    if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer):
        return layer
    window = layer.sliding_window if type(layer) is DynamicSlidingWindowLayer else None
    if not design.takes(window):
        return layer
    return Layer(design.new(window=window, capacity=capacity), is_sliding=window is not None)
