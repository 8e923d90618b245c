"""The models that this process has loaded, and the check that the next one fits. Owns the device."""

import gc
from dataclasses import replace

import torch

from kvviz.device import device_memory, pick_device
from kvviz.models import Loaded, count_params, fetched, load
from kvviz.plan import Needs, needs
from kvviz.records import ComparisonSpec
from kvviz.sources import find_source


class Engine:
    """Loads each model once, however many ask for it, and lets the least recently used go when memory is short."""

    def __init__(self) -> None:
        self._loaded: dict[tuple, Loaded] = {}

    def get(self, work: ComparisonSpec) -> Loaded:
        """The model of a comparison, loaded. Raises KvvizError where it can't be, or does not fit."""
        device = pick_device(work.device)
        source = find_source(work.model, work.weights)
        # random weights follow the seed; stored ones do not
        seed = work.sampling.seed if source.weights == "random" else 0
        key = (source.model, source.weights, device, work.dtype, work.attn, seed)
        if key not in self._loaded:
            if source.config is None:
                source = fetched(source)
            elif source.params is None:
                source = replace(source, params=count_params(source.config))
            self._make_room(needs(source, work), device)
            self._loaded[key] = load(source, dtype=work.dtype, device=device, attn=work.attn, seed=seed)
        loaded = self._loaded[key] = self._loaded.pop(key)  # the most recently used comes last
        return loaded

    def _make_room(self, wanted: Needs, device: str) -> None:
        while self._loaded and wanted.total > device_memory(device)[0]:
            self._loaded.pop(next(iter(self._loaded)))
            gc.collect()
            if device.startswith("cuda"):
                torch.cuda.empty_cache()
        wanted.check(device_memory(device)[0], device)
