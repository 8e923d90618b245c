"""Records which tokens the indexer of sparse attention picks for each token, and what attention makes of them."""

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from kvviz.decoding.loading import Loaded
from kvviz.decoding.scratch.cache import LayerCache
from kvviz.decoding.scratch.indexer import Indexer, IndexerDesign, indexer_twin
from kvviz.decoding.scratch.listing import listing
from kvviz.decoding.scratch.observe import watched
from kvviz.experiments.architectures.ways import Way, far
from kvviz.experiments.inside.numbers import likeliest, plain, shapes_of

LAYER = 0  # whose numbers are recorded


class _StandIn(nn.Module):
    """An attention of transformers whose indexer is one from scratch; it keeps the shares of its last call."""

    def __init__(self, attention: nn.Module, design: IndexerDesign) -> None:
        super().__init__()
        self.attention, self.cache = attention, LayerCache()
        self.indexer = indexer_twin(attention.get_submodule("indexer"), design)
        attention.indexer = _Picks(self.indexer, self.cache)
        self.shares = torch.empty(0)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        out, self.shares = self.attention(*args, **kwargs)  # shares (B, H, T, T_total)
        return out, self.shares


class _Picks(nn.Module):
    """An indexer from scratch, called as transformers calls its own."""

    def __init__(self, indexer: Indexer, cache: LayerCache) -> None:
        super().__init__()
        self.indexer, self.cache = indexer, cache

    def forward(self, hidden_states: Tensor, compressed: Tensor, *others: object, **more: object) -> Tensor:
        seen = self.cache.seen
        at = torch.arange(seen, seen + hidden_states.shape[1])
        picked: Tensor = self.indexer(hidden_states, compressed, at, self.cache)
        return picked.to(torch.int32)


def indexer_walk(loaded: Loaded, prompt: Tensor, new_tokens: int) -> dict[str, Any]:
    """Decode greedily, the prompt token by token too, and return what one layer picks for each token.

    `numbers` are those of a token in the cache: its latent row, and the indexer's key beside it. `difference` is how
    far each step's logits are from those of transformers, which decodes in lockstep.
    """
    config = loaded.model.config
    design = IndexerDesign.of(config.to_dict())
    places: list[_StandIn] = []

    def in_place(attention: nn.Module) -> nn.Module:
        places.append(_StandIn(attention, design))
        return places[-1]

    ours, source = Way(loaded.model, {"self_attn": in_place}), listing("Indexer", "indexer.py")
    here = places[LAYER]
    theirs = Way(loaded.model, {})
    ids, steps = prompt, []
    for total in range(1, prompt.shape[1] + new_tokens):
        with watched({LAYER: here.indexer}, Indexer, source) as seen:
            logits = ours.step(ids[:, total - 1 : total])
        made = seen[LAYER]
        steps.append(
            {
                "total": total,
                "scores": plain(made["weigh"]["scores"][0, 0]),
                "picked": sorted(made["pick"]["picked"][0, 0].tolist()),
                "shares": plain(here.shares[0, :, 0].mean(0)),
                "difference": far(logits, theirs.step(ids[:, total - 1 : total])),
                "shapes": shapes_of(made),
                "next": likeliest(loaded.codec, logits),
            }
        )
        if total >= ids.shape[1]:
            ids = torch.cat([ids, logits.argmax(dim=-1, keepdim=True)], dim=1)
    ids = ids[:, : len(steps)]
    return {
        "design": {**asdict(design), "layers": len(places)},
        "numbers": {"latent": config.kv_lora_rank + config.qk_rope_head_dim, "key": design.dim},
        "layer": LAYER,
        "prompt_tokens": prompt.shape[1],
        "tokens": [loaded.codec.decode([token]) for token in ids[0].tolist()],
        "steps": steps,
    }
