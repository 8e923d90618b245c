"""Records which layers keep keys and values, and whose the others read, as seen in the tensors of a decode."""

from typing import Any

import torch
from torch import Tensor, nn

from kvviz.base.records import LayerState
from kvviz.decoding.loading import Loaded
from kvviz.decoding.read_cache import layer_states
from kvviz.experiments.architectures.ways import Way


class _Watched(nn.Module):
    """An attention of transformers; after a call `read` is what it found under its layer's type among shared keys.

    `wrote` says whether it put them there itself.
    """

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention
        self.read: Tensor | None = None
        self.wrote = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        shared, kind = kwargs["shared_kv_states"], self.attention.layer_type
        before = shared.get(kind)
        out = self.attention(*args, **kwargs)
        after = shared.get(kind)
        self.wrote, self.read = after is not before, None if after is None else after[0]
        return out


def shared_walk(loaded: Loaded, prompt: Tensor, new_tokens: int) -> dict[str, Any]:
    """Decode greedily, the prompt token by token too, and return the bytes of each layer after each token.

    `reads` names for each layer the layer whose keys and values it reads: itself, or the one that wrote the very tensor
    that it found.
    """
    places: list[_Watched] = []

    def in_place(attention: nn.Module) -> nn.Module:
        places.append(_Watched(attention))
        return places[-1]

    way = Way(loaded.model, {"self_attn": in_place})
    ids, steps = prompt, []
    held: list[LayerState | None] = []
    for total in range(1, prompt.shape[1] + new_tokens):
        logits = way.step(ids[:, total - 1 : total])
        rows = {row.index: row for row in layer_states(way.cache)}
        held = [rows.get(layer) for layer in range(len(places))]
        steps.append(
            {
                "total": total,
                "bytes": [row.nbytes if row else 0 for row in held],
                "held": [row.held if row else 0 for row in held],
            }
        )
        if total >= ids.shape[1]:
            ids = torch.cat([ids, logits.argmax(dim=-1, keepdim=True)], dim=1)
    writers = {id(place.read): layer for layer, place in enumerate(places) if place.wrote}
    return {
        "kinds": [str(place.attention.layer_type).partition("_")[0] for place in places],
        "window": loaded.model.config.sliding_window,
        "reads": [n if (row := held[n]) and row.nbytes else writers[id(place.read)] for n, place in enumerate(places)],
        "prompt_tokens": prompt.shape[1],
        "tokens": [loaded.codec.decode([token]) for token in ids[0, : len(steps)].tolist()],
        "steps": steps,
    }
