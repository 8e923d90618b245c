"""Records which layers keep keys and values, and whose the others read, as seen in the tensors of a decode."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from kvviz.base.records import LayerState
from kvviz.decoding.loading import Loaded
from kvviz.decoding.read_cache import layer_states
from kvviz.decoding.scratch.design import Design, Rope
from kvviz.decoding.scratch.listing import listing
from kvviz.decoding.scratch.observe import watched
from kvviz.decoding.scratch.yoco import Yoco
from kvviz.device.multiply_adds import MultiplyAdds
from kvviz.experiments.architectures.spec import TINY
from kvviz.experiments.architectures.ways import Way, far
from kvviz.experiments.inside.numbers import shapes_of


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
    """Decode greedily, the prompt token by token too, and return the bytes of each layer after each token, in `models`.

    `reads` names for each layer the layer whose keys and values it reads: itself, or the one that wrote the very tensor
    that it found. The second model reads what the first one has written.
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
    reads = [n if (row := held[n]) and row.nbytes else writers[id(place.read)] for n, place in enumerate(places)]
    gemma = {
        "title": loaded.source.title,
        "names": [f"layer {layer}" for layer in range(len(places))],
        "kinds": [str(place.attention.layer_type).partition("_")[0] for place in places],
        "window": loaded.model.config.sliding_window,
        "reads": reads,
        "bytes": [step["bytes"] for step in steps],
        "held": [step["held"] for step in steps],
    }
    return {
        "prompt_tokens": prompt.shape[1],
        "tokens": [loaded.codec.decode([token]) for token in ids[0, : len(steps)].tolist()],
        "steps": [{"total": step["total"]} for step in steps],
        "models": [gemma, _yoco(ids[:, : len(steps)], prompt.shape[1])],
    }


def tiny_yoco() -> Yoco:
    """Build YOCO at a size that can be drawn, with seeded random weights as wide as those of the other tiny models."""
    sizes = TINY["yoco"]["design"]
    design = Design(**sizes, positions="rotary", rope=Rope(10_000.0))
    torch.manual_seed(0)
    model = Yoco(design, TINY["yoco"]["window"]).eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            torch.nn.init.ones_(parameter)
        else:
            torch.nn.init.normal_(parameter, std=1.6 / math.sqrt(design.width))
    return model


def _yoco(ids: Tensor, prompt: int) -> dict[str, Any]:
    """Let YOCO read a text (1, T) token by token; the same of it, with a row for the cache that it writes once.

    `difference` is how far the logits are from those of one pass over the text. `prefill` are the multiply-adds of
    reading the prompt with every token in all layers, and with only the last one in the cross-decoder.
    """
    model = tiny_yoco()
    caches, lower = model.new_caches(), len(model.self_decoder)
    read: list[Tensor] = []

    def note(module: nn.Module, given: Sequence[Any]) -> None:
        read.append(given[2])

    hooks = [block.get_submodule("attention").register_forward_pre_hook(note) for block in model.cross_decoder]
    source, logits, sizes, held = listing("Yoco", "yoco.py"), [], [], []
    with watched({0: model}, Yoco, source) as seen:
        for token in ids.split(1, dim=1):
            read.clear()
            logits.append(model(token, caches))
            filled = [(cache.k, cache.v) for cache in caches]
            sizes.append([sum(one.nbytes for one in pair if one is not None) for pair in filled])
            held.append([0 if k is None else k.shape[2] for k, _ in filled])
    for hook in hooks:
        hook.remove()
    layers = range(lower, lower + len(read))
    own = [*range(lower + 1)]
    nothing = [0] * len(layers)
    return {
        "title": TINY["yoco"]["title"],
        "names": [*(f"layer {n}" for n in range(lower)), "global", *(f"layer {n}" for n in layers)],
        "kinds": [*["sliding"] * lower, "full", *["cross"] * len(layers)],
        "window": model.mask.window,
        "reads": [*own, *(next(n for n in own if caches[n].k is keys) for keys in read)],
        "bytes": [[*row, *nothing] for row in sizes],
        "held": [[*row, *nothing] for row in held],
        "difference": far(torch.cat(logits, dim=1), model(ids, model.new_caches())),
        "prefill": {name: _work(model, ids[:, :prompt], last) for name, last in {"all": False, "early": True}.items()},
        "shapes": shapes_of(seen[0]),
    }


def _work(model: Yoco, ids: Tensor, last: bool) -> int:
    """Count the multiply-adds of a prefill."""
    with MultiplyAdds() as counter:
        model(ids, model.new_caches(), last)
    return counter.done
