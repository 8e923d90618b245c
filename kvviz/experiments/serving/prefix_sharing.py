"""Prompts one after another through the engine, each cold and warm: what shared prefixes really save.

Warm, a prompt starts with the cached blocks of earlier ones, and only the rest goes through the model. Each case is a
list of prompts: a system prompt that many requests share; a second turn of a conversation; an earlier turn that was
edited (everything before the edit is a hit); a history whose front was cut off (nothing is, since every token moves).
"""

from collections.abc import Callable, Sequence
from typing import Any

from transformers import PreTrainedModel

from kvviz.base.errors import KvvizError
from kvviz.caches.block_table import BLOCK
from kvviz.device.clock import Sync, no_collection, quartiles, timed
from kvviz.experiments.batching.batcher import Request
from kvviz.experiments.batching.batcher import Sequence as Served
from kvviz.experiments.batching.engine import Engine
from kvviz.experiments.batching.policies import POLICIES

Prompts = Sequence[Sequence[int]]
Figures = dict[str, Any]  # of one request, cold or warm


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
    device; `between` is called before every prompt and may raise. `kept_bytes` are those of the blocks that the next
    request can hit, `cold_bytes` those of all caches without sharing. Raises KvvizError for a prompt without tokens, or
    as the engine does.
    """
    if not prompts or not all(prompts):
        raise KvvizError("there is a prompt without tokens; each needs at least one")
    blocks = sum(-(-(len(ids) + new_tokens) // BLOCK) for ids in prompts)
    engines = {name: engine_for_one(model, blocks, share=name == "warm") for name in ("cold", "warm")}
    passes: list[list[dict[str, Figures]]] = []
    with no_collection():
        for repeat in range(repeats):
            engines["warm"].cache.groups.forget()
            served = []
            for ids in map(tuple, prompts):
                between()
                order = reversed(engines) if repeat % 2 else engines
                served.append({name: _figures(engines[name], ids, new_tokens, sync) for name in order})
            passes.append(served)
    rows = [_medians(len(ids), [served[i] for served in passes]) for i, ids in enumerate(prompts)]
    kept = sum(
        len(tables.pool.cached_free) * BLOCK * engines["warm"].cache.slot_bytes[window]
        for window, tables in engines["warm"].cache.groups.tables.items()
    )
    return {"requests": rows, "kept_bytes": kept, "cold_bytes": sum(row["cold"]["cache_bytes"] for row in rows)}


def engine_for_one(model: PreTrainedModel, blocks: int, **options: Any) -> Engine:
    """An engine that serves one request at a time; its memory is allocated, and empty."""
    engine = Engine(model, POLICIES["continuous"], blocks, places=1, **options)
    engine.submit(Request(-1, (0,), 1))
    engine.step()
    return engine


def submit(engine: Engine, ids: Sequence[int], new_tokens: int) -> Served:
    """Submit a prompt, and ask for one token more than needed, so that its blocks can still be read at the end."""
    return engine.submit(Request(len(engine.batcher.sequences), tuple(ids), new_tokens + 1))


def _figures(engine: Engine, ids: tuple[int, ...], new_tokens: int, sync: Sync) -> Figures:
    """Serve one request under the clock; what was a hit are its `found_tokens`, in `found_bytes`."""
    one = submit(engine, ids, new_tokens)
    steps = (engine.step() for _ in range(new_tokens))
    seconds = [step.seconds for step in timed(steps, sync)]
    cache = engine.cache
    held = sum(
        sum(tables.filled([one.place]).values()) * cache.slot_bytes[window]
        for window, tables in cache.groups.tables.items()
    )
    engine.cancel(one.request.number)
    return {
        "found_tokens": one.hits,
        "computed_tokens": len(ids) - one.hits,
        "ttft_s": seconds[0],
        "cache_bytes": held,
        "found_bytes": one.hits * sum(cache.slot_bytes.values()),
        "token_ids": one.chosen,
    }


def _medians(prompt_tokens: int, served: list[dict[str, Figures]]) -> dict[str, Any]:
    """One request over its repeats: the seconds' quartiles, and everything else from the first repeat."""
    identical = all(one["cold"]["token_ids"] == one["warm"]["token_ids"] for one in served)
    for name, first in served[0].items():
        first["ttft_s_q1"], first["ttft_s"], first["ttft_s_q3"] = quartiles([one[name]["ttft_s"] for one in served])
    return {"prompt_tokens": prompt_tokens, "identical": identical, **served[0]}
