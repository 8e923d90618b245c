"""Conversations that take turns on the engine, and the radix tree of prefixes in its block pool after each request."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kvviz.caches.block_table import BLOCK
from kvviz.caches.prefix_tree import PrefixTree, Run, every
from kvviz.experiments.batching.engine import Engine
from kvviz.experiments.serving.prefix_sharing import submit
from kvviz.models.text import Codec

VISITOR = "V"  # it has no system prompt


def serve_in_turn(
    engine: Engine,
    system: Sequence[int],
    asked: Iterable[tuple[str, Sequence[int]]],
    new_tokens: int,
    codec: Codec,
    between: Callable[[], None],
) -> Iterator[dict[str, Any]]:
    """Serve (who, what is asked) one after another, each with all that was said before; what each came to, as JSON.

    `between` is called before each and may raise.
    """
    pool = engine.cache.groups.widest.pool
    tree, served, said = PrefixTree(pool), list[list[int]](), dict[str, list[int]]()
    for who, ask in asked:
        between()
        evictions, prompt = pool.evictions, [*said.get(who, () if who == VISITOR else system), *ask]
        one = submit(engine, prompt, new_tokens)
        for _ in range(new_tokens):
            engine.step()
        engine.cancel(one.request.number)
        said[who] = one.ids
        served.append(one.ids[:-1])  # the last token was chosen, never fed
        runs = tree.served(served[-1], one.hits)
        yield {
            "who": who,
            "answer": codec.decode(one.chosen),
            "token_ids": one.chosen,
            "prompt_tokens": len(prompt),
            "hit_tokens": one.hits,
            "computed_tokens": len(prompt) - one.hits,
            "recomputed_tokens": BLOCK * sum(run.states.count("again") for run in every(runs)),
            "evicted_blocks": pool.evictions - evictions,
            "tree": [_drawn(run, served, codec) for run in runs],
        }


def _drawn(run: Run, served: Sequence[Sequence[int]], codec: Codec) -> dict[str, Any]:
    """A run of the tree as JSON values, with the text of each of its blocks."""
    ids, starts = served[run.requests[0]], range(run.first, run.first + BLOCK * len(run.states), BLOCK)
    texts = [codec.decode(ids[start : start + BLOCK]) for start in starts]
    children = [_drawn(child, served, codec) for child in run.children]
    return {"first": run.first, "requests": run.requests, "states": run.states, "texts": texts, "children": children}
