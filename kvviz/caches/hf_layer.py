"""A design under transformers: each layer that keeps keys and values becomes one of ours, with transformers' methods.

Layers of other kinds (linear attention, an indexer's, those that share another's) stay transformers' own.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy, deepcopy
from functools import partial

import torch
from transformers import DynamicCache, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer

from kvviz.base.errors import KvvizError
from kvviz.caches.attention import Watch
from kvviz.caches.base import KVCache, Pair
from kvviz.caches.designs import Design
from kvviz.caches.evicting import Evicting
from kvviz.caches.kvzip import KVzip


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
        taken = [i for i, layer in enumerate(self.layers) if _is_taken(design, layer)]
        for number, i in enumerate(taken):
            self.layers[i] = _layer_for(design.in_layer(number, len(taken)), self.layers[i], capacity)
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

        There a design that evicts by the weights of attention sees them; for any other design it does nothing. If a
        design has the model read the text again before it evicts, that happens at the end of the forward, inside this.
        """
        evicting = {
            index: layer.own
            for index, layer in enumerate(self.layers)
            if isinstance(layer, Layer) and isinstance(layer.own, Evicting)
        }
        if not evicting:
            return nullcontext
        watch = Watch(model, evicting)
        again = [own for own in evicting.values() if isinstance(own, KVzip)]
        return partial(self._reading_again, model, watch, again) if again else watch

    @contextmanager
    def _reading_again(self, model: PreTrainedModel, watch: Watch, caches: list[KVzip]) -> Iterator[None]:
        """Watch a forward; then, if one of the `caches` will evict, read the text again, which no layer stores.

        Layers that are not the design's are put back as they were.
        """
        with watch():
            yield
        if not any(own.due for own in caches):
            return
        others = {i: layer for i, layer in enumerate(self.layers) if not isinstance(layer, Layer)}
        pieces = caches[0].chunks(getattr(model.config.get_text_config(), "max_position_embeddings", None))
        for own in caches:
            own.begin()
        try:
            for ids in pieces:
                # layers of keys and values replace their tensors; others write into them
                for i, layer in others.items():
                    self.layers[i] = copy(layer) if isinstance(layer, DynamicLayer) else deepcopy(layer)
                with watch():
                    model.base_model(input_ids=ids, past_key_values=self, use_cache=True)
        finally:
            for i, layer in others.items():
                self.layers[i] = layer
            for own in caches:
                own.again = False
        for own in caches:
            own.end()

    def note(self, ids: torch.Tensor) -> None:
        """Tell the layers which tokens come, (B, T); this waits for the device."""
        rows = ids.tolist()
        for own in self.own:
            own.note(rows)


def _window(layer: CacheLayerMixin) -> int | None:
    return layer.sliding_window if type(layer) is DynamicSlidingWindowLayer else None


def _is_taken(design: Design, layer: CacheLayerMixin) -> bool:
    """Whether a layer of the design stands in place of transformers' own."""
    return type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) and design.takes(_window(layer))


def _layer_for(design: Design, layer: CacheLayerMixin, capacity: int | None) -> CacheLayerMixin:
    window = _window(layer)
    return Layer(design.new(window=window, capacity=capacity), is_sliding=window is not None)
