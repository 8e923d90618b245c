"""Prompts one after another through a real model, each cold and warm: what shared prefixes really save.

Warm, a prompt starts with the cached blocks of earlier ones, and only the rest goes through the model. Each case is a
list of prompts: a system prompt that many requests share; a second turn of a conversation; an earlier turn that was
edited (everything before the edit is a hit); a history whose front was cut off (nothing is, since every token moves).
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from kvviz.base.errors import KvvizError
from kvviz.caches.designs import DESIGNS
from kvviz.caches.hf_layer import DesignCache, Layer
from kvviz.caches.paged import Pages, Prefix
from kvviz.decoding.loop import greedy, steps
from kvviz.decoding.modes import reading_new_tokens
from kvviz.device.clock import Sync, no_collection, quartiles, timed

Prompts = Sequence[Sequence[int]]
Served = dict[str, Any]  # one request, cold or warm


class KeptBlocks:
    """The blocks of every layer of a model, kept from one request to the next."""

    def __init__(self, config: PreTrainedConfig) -> None:
        self._config = config
        cache = self._empty()
        strange = [type(layer).__name__ for layer in cache.layers if not isinstance(layer, Layer)]
        if strange:
            raise KvvizError(f"a layer of this model keeps a state ({strange[0]}), which can't be shared by blocks")
        self._pages: list[Pages] = [own.pages for own in layers_of(cache)]

    def _empty(self) -> DesignCache:
        return DesignCache(DESIGNS["prefix"], self._config)

    def start(self, ids: list[int]) -> tuple[DesignCache, int]:
        """A cache for one sequence that starts with the cached blocks of `ids`, and how many tokens those have."""
        cache = self._empty()
        layers = layers_of(cache)
        for own, kept in zip(layers, self._pages, strict=True):
            own.pages = kept
        hits = [own.start_with_prefix(ids) for own in layers]
        for own, tokens in zip(layers, hits, strict=True):
            own.crop(tokens - min(hits))
        return cache, min(hits)

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks, over all layers."""
        return sum(t.untyped_storage().nbytes() for pages in self._pages for t in (*pages.keys, *pages.values))


def layers_of(cache: DesignCache) -> list[Prefix]:
    """The layers of a cache of the design `prefix`."""
    return [own for own in cache.own if isinstance(own, Prefix)]


def serve(
    model: PreTrainedModel,
    prompts: Prompts,
    *,
    new_tokens: int = 8,
    repeats: int = 3,
    sync: Sync = lambda: None,
    between: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Serve each prompt in turn, cold and warm, greedily: seconds (quartiles over repeats), tokens computed and bytes.

    Each repeat starts from an empty memory, and whether cold or warm comes first alternates. `sync` waits for the
    device; `between` is called before every prompt and may raise. `kept_bytes` are those of the blocks that stay,
    `cold_bytes` those of all caches without sharing. Raises KvvizError for a prompt without tokens or a model with
    states.
    """
    if not prompts or not all(prompts):
        raise KvvizError("there is a prompt without tokens; each needs at least one")
    passes: list[tuple[list[dict[str, Served]], int]] = []
    with no_collection():
        for repeat in range(repeats):
            kept, served = KeptBlocks(model.config), []
            for ids in map(list, prompts):
                memories = {"cold": KeptBlocks(model.config), "warm": kept}
                between()
                order = reversed(memories) if repeat % 2 else memories
                served.append({n: _request(model, *memories[n].start(ids), ids, new_tokens, sync) for n in order})
            passes.append((served, kept.nbytes))
    rows = [_medians(len(ids), [served[i] for served, _ in passes]) for i, ids in enumerate(prompts)]
    return {"requests": rows, "kept_bytes": passes[0][1], "cold_bytes": sum(row["cold"]["cache_bytes"] for row in rows)}


def _request(
    model: PreTrainedModel, cache: DesignCache, hits: int, ids: list[int], new_tokens: int, sync: Sync
) -> Served:
    """Prefill what was no cache hit, under the clock, and decode; the hits are `found_tokens`, in `found_bytes`."""
    new, layers = torch.tensor([ids[hits:]], device=model.device), layers_of(cache)
    hit_bytes = sum(own.nbytes for own in layers)
    forward = reading_new_tokens(model, cache, cache.note)
    passed = list(timed(steps(forward, new, "prefix", new_tokens, greedy), sync))
    held = sum(own.nbytes for own in layers)
    for own in layers:
        own.release()
    return {
        "found_tokens": hits,
        "computed_tokens": len(ids) - hits,
        "ttft_s": passed[0].seconds,
        "cache_bytes": held,
        "found_bytes": hit_bytes,
        "token_ids": [int(one.step.token_ids) for one in passed],
    }


def _medians(prompt_tokens: int, served: list[dict[str, Served]]) -> dict[str, Any]:
    """One request over its repeats: the seconds' quartiles, and everything else from the first repeat."""
    identical = all(one["cold"]["token_ids"] == one["warm"]["token_ids"] for one in served)
    for name, first in served[0].items():
        first["ttft_s_q1"], first["ttft_s"], first["ttft_s_q3"] = quartiles([one[name]["ttft_s"] for one in served])
    return {"prompt_tokens": prompt_tokens, "identical": identical, **served[0]}
