"""Records one attention layer of a real decode as plain numbers: what each step reads, caches, computes and recomputes.

The decode runs twice on the transformer from scratch with the model's own weights: with a cache for each layer, and
without one. Both runs are observed at every line, and the values recomputed in the second are compared with the cached
values of the first.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from kvviz.base.errors import KvvizError
from kvviz.decoding.scratch.design import Design
from kvviz.decoding.scratch.model import Transformer
from kvviz.decoding.scratch.observe import observed
from kvviz.device.multiply_adds import MultiplyAdds
from kvviz.experiments.inside.numbers import likeliest, lower, plain, shapes_of
from kvviz.models.text import Codec

MOST_NUMBERS = 150_000  # of a layer's q, k, v, scores, weights and outputs; above this, one group of heads is sent
SHOWN = ("family", "layers", "heads", "kv_heads", "head_dim", "width", "positions", "qk_norm")  # of the design

Seen = dict[str, dict[str, torch.Tensor]]


def dissect(
    model: Transformer, codec: Codec, prompt: torch.Tensor, *, new_tokens: int, layer: int, head: int
) -> dict[str, Any]:
    """Decode `new_tokens` tokens greedily after `prompt` (1, T), and return the numbers of one layer.

    Matrices are nested lists with a row for each token read: `q`, `mixed` [head][row], `k`, `v` [KV head][row],
    `scores`, `weights` [head][row] up to the row's own column. Raises KvvizError if the model has no such layer or head
    or if its context is too short.
    """
    design = model.design
    if layer >= design.layers or head >= design.heads:
        raise KvvizError(
            f"there is no layer {layer}, head {head}: this model has {design.layers} layers of {design.heads} heads, "
            "counted from 0"
        )
    total = prompt.shape[1] + new_tokens - 1  # no forward reads the last chosen token
    if total > design.context:
        raise KvvizError(f"{total:,} tokens are more than the {design.context:,} that this model reads")
    heads = _heads(design, head, total)
    groups = sorted({head // (design.heads // design.kv_heads) for head in heads})
    with torch.no_grad():
        kept = list(_kept(model, prompt, new_tokens, layer))
        ids = torch.cat([step["ids"] for step in kept], dim=1)  # (1, total)
        again = [_again(model, ids[:, : step["total"]], layer, kept) for step in kept]
    rows = {name: torch.cat([step["made"][name][0] for step in kept], dim=1) for name in ("q", "k", "v", "mixed")}
    return {
        "t": "anatomy",
        "layer": layer,
        "heads": heads,
        "kv_heads": groups,
        "design": {name: getattr(design, name) for name in SHOWN},
        "prompt_tokens": prompt.shape[1],
        "tokens": [codec.decode([token]) for token in ids[0].tolist()],
        "q": plain(rows["q"][heads]),
        "k": plain(rows["k"][groups]),
        "v": plain(rows["v"][groups]),
        "mixed": plain(rows["mixed"][heads]),
        "scores": lower([step["made"]["scores"][0] for step in kept], heads),
        "weights": lower([step["made"]["weights"][0] for step in kept], heads),
        "steps": [_step(codec, step, other) for step, other in zip(kept, again, strict=True)],
    }


def _heads(design: Design, head: int, total: int) -> list[int]:
    """All query heads or, if those are too many to send, only the ones that share a KV head with `head`."""
    numbers = total * (2 * design.heads * (design.head_dim + total) + 2 * design.kv_heads * design.head_dim)
    if numbers <= MOST_NUMBERS:
        return list(range(design.heads))
    size = design.heads // design.kv_heads
    first = head // size * size
    return list(range(first, first + size))


def _kept(model: Transformer, prompt: torch.Tensor, new_tokens: int, layer: int) -> Iterator[dict[str, Any]]:
    """Decode with a cache and yield a dict for each step."""
    caches, new = model.new_caches(), prompt
    for _ in range(new_tokens):
        with observed(model, [layer]) as seen, MultiplyAdds() as counter:
            logits = model.last_logits(new, caches)  # (1, vocabulary)
        made = _made(seen[layer])
        yield {
            "ids": new,
            "total": caches[layer].seen,
            "made": made,
            "shapes": shapes_of(seen[layer]),
            "multiply_adds": counter.done,
            "cache_bytes": sum(t.nbytes for cache in caches for t in (cache.k, cache.v) if t is not None),
            "logits": logits,
        }
        new = logits.argmax(dim=-1, keepdim=True)


def _again(model: Transformer, ids: torch.Tensor, layer: int, kept: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Repeat a step without a cache: read all tokens so far again and compare the results with the cached ones."""
    with observed(model, [layer]) as seen, MultiplyAdds() as counter:
        logits = model.last_logits(ids)
    made, total = _made(seen[layer]), ids.shape[1]
    step = next(step for step in kept if step["total"] == total)
    before = {name: torch.cat([s["made"][name] for s in kept if s["total"] <= total], dim=2) for name in ("k", "v")}
    return {
        "shapes": shapes_of(seen[layer]),
        "multiply_adds": counter.done,
        "difference": max((made[name] - before[name]).abs().max().item() for name in ("k", "v")),
        "logits_difference": (logits - step["logits"]).abs().max().item(),
    }


def _made(seen: Seen) -> dict[str, torch.Tensor]:
    """The new tokens' tensors to draw, as attention used them."""
    return {
        "q": seen["turn"]["q"].float(),  # (1, H, T, D)
        "k": seen["turn"]["k"].float(),  # (1, Hkv, T, D), as the cache stores it
        "v": seen["split"]["v"].float(),  # (1, Hkv, T, D)
        "scores": seen["lean"]["scores"].float(),  # (1, H, T, T_total)
        "weights": seen["softmax"]["weights"].float(),  # (1, H, T, T_total)
        "mixed": seen["mix"]["mixed"].float(),  # (1, H, T, D)
    }


def _step(codec: Codec, step: dict[str, Any], again: dict[str, Any]) -> dict[str, Any]:
    return {
        "read": step["ids"].shape[1],
        **{name: step[name] for name in ("total", "shapes", "multiply_adds", "cache_bytes")},
        "next": likeliest(codec, step["logits"]),
        "again": again,
    }
