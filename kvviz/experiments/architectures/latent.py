"""Records multi-head latent attention decoded in two ways: keys and values of all heads cached, or one latent row."""

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from kvviz.decoding.loading import Loaded
from kvviz.decoding.scratch.cache import LayerCache
from kvviz.decoding.scratch.latent import Absorbed, Expanded, LatentAttention, LatentDesign, latent_twin
from kvviz.decoding.scratch.listing import listing
from kvviz.decoding.scratch.observe import Stages, watched
from kvviz.experiments.architectures.ways import Counted, Way, far, joined
from kvviz.experiments.inside.numbers import likeliest, lower, plain, shapes_of

LAYER = 1  # whose numbers are recorded; the figures are of all layers


class _StandIn(Counted):
    """An attention from scratch with a cache of its own; the cache and the mask of transformers are left aside."""

    def __init__(self, layer: LatentAttention) -> None:
        super().__init__(layer)
        self.cache = LayerCache()

    def call(self, hidden_states: Tensor, **others: object) -> tuple[Tensor, None]:
        seen, new = self.cache.seen, hidden_states.shape[1]
        return self.layer(hidden_states, torch.arange(seen, seen + new), self.cache), None


def latent_walk(loaded: Loaded, prompt: Tensor, new_tokens: int) -> dict[str, Any]:
    """Decode greedily in both ways and by transformers itself, in lockstep, and return all numbers of one layer.

    Transformers caches the latent rows and makes all keys and values of them again in each step. Matrices are nested
    lists with a row for each token; with [head] before it where heads differ. `scores` and `weights` end at the row's
    own column.
    """
    design = LatentDesign.of(loaded.model.config.to_dict())
    kinds: dict[str, type[LatentAttention]] = {"expanded": Expanded, "absorbed": Absorbed}
    ways = {name: Way(loaded.model, {"self_attn": _in_place(design, kind)}) for name, kind in kinds.items()}
    theirs = Way(loaded.model, {"self_attn": Counted})
    new, read, steps = prompt, [], []
    made: dict[str, list[Stages]] = {name: [] for name in kinds}
    for _ in range(new_tokens):
        logits, row = {"transformers": theirs.step(new)}, {}
        for name, way in ways.items():
            kind = kinds[name]
            with watched(
                {LAYER: way.layers[LAYER].get_submodule("layer")}, kind, listing(kind.__name__, "latent.py")
            ) as seen:
                logits[name] = way.step(new)
            made[name].append(seen[LAYER])
            row[name] = {"shapes": shapes_of(seen[LAYER]), "cache_bytes": _held(way)}
        row["transformers"] = {"cache_bytes": sum(one.keys.nbytes + one.values.nbytes for one in theirs.cache.layers)}
        for name, way in {**ways, "transformers": theirs}.items():
            row[name]["multiply_adds"] = sum(way.multiply_adds())
        read.append(new)
        total = sum(ids.shape[1] for ids in read)
        steps.append(
            {
                "read": new.shape[1],
                "total": total,
                **row,
                "difference": {
                    "scores": far(*(made[name][-1]["score"]["scores"] for name in kinds)),
                    "mixed": far(made["expanded"][-1]["mix"]["mixed"], made["absorbed"][-1]["unfold"]["mixed"]),
                    "logits": far(logits["expanded"], logits["absorbed"]),
                    "transformers": max(far(logits[name], logits["transformers"]) for name in kinds),
                },
                "next": likeliest(loaded.codec, logits["absorbed"]),
            }
        )
        new = logits["absorbed"].argmax(dim=-1, keepdim=True)
    one, other = made["expanded"], made["absorbed"]
    return {
        "design": {**asdict(design), "layers": len(ways["expanded"].layers)},
        "layer": LAYER,
        "tokens": [loaded.codec.decode([token]) for token in torch.cat(read, dim=1)[0].tolist()],
        "latent": plain(joined(other, "compress", "latent")[0]),
        "rotated": plain(joined(other, "compress", "k_rotated")[0]),
        "k": plain(joined(one, "expand", "k")),
        "v": plain(joined(one, "expand", "v")),
        "q": plain(joined(one, "query", "q")),
        "q_rotated": plain(joined(one, "query", "q_rotated")),
        "q_latent": plain(joined(other, "absorb", "q_latent")),
        "mixed_latent": plain(joined(other, "mix", "mixed_latent")),
        "mixed": plain(joined(other, "unfold", "mixed")),
        "scores": lower([step["score"]["scores"][0] for step in other], range(design.heads)),
        "weights": lower([step["softmax"]["weights"][0] for step in other], range(design.heads)),
        "steps": steps,
    }


def _in_place(design: LatentDesign, kind: type[LatentAttention]) -> Any:
    """A function that wraps a layer's twin from scratch, of this kind, in the layer's place."""
    return lambda theirs: _StandIn(latent_twin(theirs, design, kind))


def _held(way: Way) -> int:
    """The bytes of the keys and values, or of the latent rows and rotated keys, in all layers."""
    caches = [layer.cache for layer in way.layers.values() if isinstance(layer, _StandIn)]
    return sum(held.nbytes for cache in caches for held in (cache.k, cache.v) if held is not None)
