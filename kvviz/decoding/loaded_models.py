"""The models that this process has loaded, and the check that the next one fits. Owns the device."""

import gc
from collections.abc import Callable
from dataclasses import replace

import torch

from kvviz.decoding.loading import Loaded, Progress, count_params, fetched, load
from kvviz.decoding.modes import check_modes
from kvviz.decoding.requirements import Needs, needs
from kvviz.decoding.work import Work
from kvviz.device.memory import device_memory
from kvviz.device.pick import pick_device
from kvviz.models.sources import find_source


class LoadedModels:
    """Loads each model once, however many ask for it, and lets the least recently used go when memory is short."""

    def __init__(self, free: Callable[[str], int] = lambda device: device_memory(device)[0]) -> None:
        self._loaded: dict[tuple, Loaded] = {}
        self._free = free
        self.share = 1.0  # of the free memory, that one model and its work may take

    def get(self, work: Work, progress: Progress = lambda record: None) -> Loaded:
        """The model of a comparison, loaded. Raises KvvizError where it can't be, or the work does not fit.

        `progress` is told of a download: bytes so far and in all.
        """
        device = pick_device(work.device)
        source = find_source(work.model, work.weights)
        # random weights follow the seed; stored ones do not
        seed = work.sampling.seed if source.weights == "random" else 0
        key = (source.model, source.weights, device, work.dtype, work.attn, seed)
        loaded = self._loaded.pop(key, None)
        if loaded is not None:
            source = loaded.source
        elif source.config is None:
            source = fetched(source)
        elif source.params is None:
            source = replace(source, params=count_params(source.config))
        try:
            check_modes(work.modes, source.config, device)
            wanted = needs(source, work)
            self._make_room(replace(wanted, weights=0) if loaded else wanted, device)
            if loaded is None:
                loaded = load(source, dtype=work.dtype, device=device, attn=work.attn, seed=seed, progress=progress)
        finally:
            if loaded is not None:
                self._loaded[key] = loaded  # the most recently used comes last
        return loaded

    def _make_room(self, wanted: Needs, device: str) -> None:
        """Let the oldest go until `wanted` fits. Raises KvvizError if even that won't do."""
        tidy(device)
        while self._loaded and wanted.total > self.share * self._free(device):
            self._loaded.pop(next(iter(self._loaded)))
            tidy(device)
        wanted.check(self._free(device), device, self.share)

    def forget(self) -> None:
        """Let all models go: after a failed allocation nothing is kept that the next work may need the room of."""
        self._loaded.clear()
        tidy(pick_device())


def tidy(device: str) -> None:
    """Give back what nobody holds any more, the allocator's own reserve included."""
    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
