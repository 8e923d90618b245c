"""The models that this process has loaded, and the check that the next one fits."""

import gc
from collections.abc import Callable
from dataclasses import replace

import torch

from kvviz.base.errors import KvvizError
from kvviz.base.records import SPLIT
from kvviz.decoding.loading import Loaded, Progress, attention_of, count_params, fetched, load
from kvviz.decoding.modes import check_modes
from kvviz.decoding.requirements import Needs, Work, needs
from kvviz.decoding.split import check_can_split, room_for
from kvviz.device.clock import keep_out
from kvviz.device.environment import devices, pick_device
from kvviz.device.memory import device_memory, give_freed_memory_back
from kvviz.models.sources import find_source

LIBRARIES = 2**29  # bytes that cuBLAS's workspaces and the allocator's unused parts may take on a GPU


class LoadedModels:
    """Loads each model once and evicts the least recently used ones when memory is short."""

    def __init__(self, free: Callable[[str], int] = lambda device: device_memory(device)[0]) -> None:
        self._loaded: dict[tuple[str | int, ...], Loaded] = {}
        self._memory = free
        self.share = 1.0  # share of the free memory that one model and its work may use

    def get(self, work: Work, progress: Progress = lambda record: None, *, may_split: bool = False) -> Loaded:
        """Return the loaded model of a work. Raises KvvizError if it can't be loaded or the work does not fit.

        `progress` receives the bytes of a download, so far and in total. `may_split`: the caller can measure a model
        that lies on several devices.
        """
        split = may_split and work.device == SPLIT
        if split:
            check_can_split()
        device = SPLIT if split else pick_device(work.device)
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
            source = replace(source, params=count_params(source.config or {}))
        try:
            check_modes(work.modes, source.config, device)
            attn = attention_of(source.config or {}, work.attn)
            wanted = needs(source, replace(work, attn=attn))
            room: dict[str, int] | None = None
            if split and loaded is not None:
                try:
                    room = self._room(wanted, drawn=False)
                except KvvizError:
                    loaded = None  # loaded anew, more of its weights lie elsewhere
            if split and loaded is None:  # outside the handler, whose error would keep the model in memory
                room = self._room(wanted, drawn=source.weights == "random")
            if room is None:
                self._evict_until(replace(wanted, weights=0) if loaded else wanted, device)
            if loaded is None:
                loaded = load(
                    source, dtype=work.dtype, device=device, attn=attn, seed=seed, progress=progress, room=room
                )
                keep_out()
        finally:
            if loaded is not None:
                self._loaded[key] = loaded  # the most recently used comes last
        return loaded

    def _free(self, device: str) -> int:
        """Bytes that models and their work may take; on a GPU, its libraries keep some for themselves."""
        return self._memory(device) - (0 if device == "cpu" else LIBRARIES)

    def _evict_until(self, wanted: Needs, device: str) -> None:
        """Evict the oldest models until `wanted` fits. Raises KvvizError if even that is not enough."""
        if wanted.total > self.share * self._free(device):  # else the allocator keeps its reserve: a new one costs time
            tidy(device)
        while self._loaded and wanted.total > self.share * self._free(device):
            self._loaded.pop(next(iter(self._loaded)))
            tidy(device)
        wanted.check(self._free(device), device, self.share)

    def _room(self, wanted: Needs, *, drawn: bool) -> dict[str, int]:
        """Return the bytes of weights that each device may hold; all other models are evicted first.

        Raises KvvizError if the work does not fit, or if the host's memory has no room for weights yet to be `drawn`.
        """
        self._loaded.clear()
        for device in devices():
            tidy(device)
        room = room_for(wanted, self._free, self.share)
        if drawn:
            replace(wanted, caches=0, logits=0, working=0).check(self._free("cpu"), "the host's memory", self.share)
        return room

    def forget(self) -> None:
        """Evict all models, because after a failed allocation the next work may need their memory."""
        self._loaded.clear()
        tidy(pick_device())


def tidy(device: str) -> None:
    """Free all unreferenced memory, including what the allocator holds in reserve."""
    gc.unfreeze()  # what earlier timed passes have kept out of the collections, too
    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
    elif device.startswith("mps"):
        torch.mps.empty_cache()
    give_freed_memory_back()
