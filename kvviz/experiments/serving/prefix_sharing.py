"""Prompts one after another through a real model, each cold and warm: what shared beginnings save, as work really done.

Warm, a prompt starts with the blocks that earlier ones have left, and only the rest goes through the model. A system
prompt that many requests share, a second turn of a conversation, an earlier turn that was edited (all before the edit
is found), a history whose front was cut off (nothing is: every token stands elsewhere): each is a list of prompts.
"""

import inspect
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kvviz.base.errors import KvvizError
from kvviz.caches.designs import DESIGNS
from kvviz.caches.hf_layer import DesignCache, Layer
from kvviz.caches.prefix import Prefix, SharedPages
from kvviz.device.clock import no_collection, quartiles


class Kept:
    """The blocks of every layer of a model, kept from one request to the next."""

    def __init__(self, config: Any) -> None:
        self._config = config
        cache = self._empty()
        strange = [type(layer).__name__ for layer in cache.layers if not isinstance(layer, Layer)]
        if strange:
            raise KvvizError(f"a layer of this model keeps a state ({strange[0]}), which can't be shared by blocks")
        self._pages: list[SharedPages] = [own.pages for own in cache.own]

    def _empty(self) -> DesignCache:
        return DesignCache(DESIGNS["prefix"], self._config)

    def start(self, ids: list[int]) -> tuple[DesignCache, int]:
        """A cache for one sequence that has the blocks known of `ids` already, and how many tokens those are."""
        cache, pages = self._empty(), self._pages
        for own, kept in zip(cache.own, pages, strict=True):
            own.pages = kept
        found = [own.adopt(ids) for own in cache.own]
        for own, tokens in zip(cache.own, found, strict=True):
            own.crop(tokens - min(found))
        return cache, min(found)

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks, over all layers."""
        return sum(t.untyped_storage().nbytes() for pages in self._pages for t in (*pages.keys, *pages.values))


def serve(
    model: Any,
    prompts: Sequence[Sequence[int]],
    *,
    new_tokens: int = 8,
    repeats: int = 3,
    sync: Callable[[], None] = lambda: None,
    between: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Serve each prompt in turn, cold and warm, greedily: seconds (quartiles over repeats), tokens computed and bytes.

    Each repeat starts from an empty memory; which of cold and warm comes first, changes. `sync` waits for the device;
    `between` is called before every prompt and may raise. Raises KvvizError for a prompt without tokens or a model with
    states.
    """
    if not prompts or not all(prompts):
        raise KvvizError("there is a prompt without tokens; each needs at least one")
    with no_collection():
        passes = [_pass(model, prompts, new_tokens, sync, between, turn % 2 == 1) for turn in range(repeats)]
    rows = [_medians([served[i] for served, _ in passes]) for i in range(len(prompts))]
    return {"requests": rows, "kept_bytes": passes[0][1], "cold_bytes": sum(row["cold"]["cache_bytes"] for row in rows)}


def _pass(
    model: Any,
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
    sync: Callable[[], None],
    between: Callable[[], None],
    warm_first: bool,
) -> tuple[list[dict[str, Any]], int]:
    """Every prompt once, cold and warm."""
    kept, served = Kept(model.config), []
    for prompt in prompts:
        ids = list(prompt)
        memories = {"cold": Kept(model.config), "warm": kept}
        row: dict[str, Any] = {"prompt_tokens": len(ids)}
        between()
        for name in reversed(memories) if warm_first else memories:
            row[name] = _request(model, *memories[name].start(ids), ids, new_tokens, sync)
        served.append(row)
    return served, kept.nbytes


def _request(
    model: Any, cache: DesignCache, found: int, ids: list[int], new_tokens: int, sync: Callable[[], None]
) -> dict[str, Any]:
    """The prefill of what was not found, under the clock, and the decode after it."""
    new, tokens = torch.tensor([ids[found:]], device=model.device), []
    shared = sum(own.nbytes for own in cache.own)
    sync()
    started = time.perf_counter()
    with torch.inference_mode():
        logits = _logits(model, cache, new)
        tokens.append(int(logits.argmax()))  # waits for the device
        seconds = time.perf_counter() - started
        for _ in range(new_tokens - 1):
            logits = _logits(model, cache, torch.tensor([tokens[-1:]], device=model.device))
            tokens.append(int(logits.argmax()))
    held = sum(own.nbytes for own in cache.own)
    owns: list[Prefix] = cache.own  # type: ignore[assignment]
    for own in owns:
        own.release()
    return {
        "found_tokens": found,
        "computed_tokens": len(ids) - found,
        "ttft_s": seconds,
        "cache_bytes": held,
        "found_bytes": shared,
        "token_ids": tokens,
    }


def _logits(model: Any, cache: DesignCache, new: torch.Tensor) -> torch.Tensor:
    """Of the last position alone, where the model can spare its head the others."""
    cache.note(new)
    last = {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}
    return model(input_ids=new, past_key_values=cache, use_cache=True, **last).logits[:, -1]


def _medians(served: list[dict[str, Any]]) -> dict[str, Any]:
    """One request over its repeats: the seconds' quartiles, everything else of the first."""
    row = {name: dict(served[0][name]) for name in ("cold", "warm")}
    for name, found in row.items():
        seconds = quartiles([one[name]["ttft_s"] for one in served])
        found["ttft_s_q1"], found["ttft_s"], found["ttft_s_q3"] = seconds
    identical = all(one["cold"]["token_ids"] == one["warm"]["token_ids"] for one in served)
    return {"prompt_tokens": served[0]["prompt_tokens"], "identical": identical, **row}
