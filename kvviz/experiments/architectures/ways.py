"""Decode one model in several ways, step by step beside each other: as it is, or with a layer from scratch in it."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from kvviz.decoding.loading import Loaded, load
from kvviz.decoding.modes import cache_argument
from kvviz.decoding.read_cache import layer_states
from kvviz.device.multiply_adds import MultiplyAdds
from kvviz.experiments.architectures.spec import TINY
from kvviz.experiments.inside.numbers import likeliest
from kvviz.models.sources import Source

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedModel


class Counted(nn.Module):
    """Runs a layer of transformers and counts its multiply-adds in `done`."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.done = 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with MultiplyAdds() as counter:
            out = self.call(*args, **kwargs)
        self.done += counter.done
        return out

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """What the layer makes of what transformers passes."""
        return self.layer(*args, **kwargs)


Wraps = Mapping[str, Callable[[nn.Module], nn.Module]]  # by the name of the part of a decoder layer


class Way:
    """A model some parts of whose layers are wrapped, in a copy of it, and the cache that transformers keeps for it."""

    def __init__(self, model: "PreTrainedModel", wraps: Wraps) -> None:
        from transformers import DynamicCache

        self.model = deepcopy(model) if wraps else model
        self.cache: Cache = DynamicCache(config=model.config)
        self.layers: dict[int, nn.Module] = {}
        self.takes = cache_argument(model)
        for number, layer in enumerate(self.model.base_model.layers):
            for name, wrap in wraps.items():
                if hasattr(layer, name):
                    self.layers[number] = wrap(getattr(layer, name))
                    setattr(layer, name, self.layers[number])

    def step(self, new: Tensor) -> Tensor:
        """Read new tokens (1, T); return the logits of the last one, (1, vocabulary)."""
        return self.logits(new)[:, -1]

    def logits(self, new: Tensor) -> Tensor:
        """Read new tokens (1, T); return the logits of each, (1, T, vocabulary)."""
        made: Tensor = self.model(new, **{self.takes: self.cache}, use_cache=True).logits
        return made

    def multiply_adds(self) -> list[int]:
        """The multiply-adds of each layer that is Counted since this was last asked."""
        counted = [layer for layer in self.layers.values() if isinstance(layer, Counted)]
        done = [layer.done for layer in counted]
        for layer in counted:
            layer.done = 0
        return done


def token_by_token(
    loaded: Loaded, read: Callable[[Tensor], tuple[Tensor, dict[str, Any]]], prompt: Tensor, new_tokens: int
) -> tuple[Tensor, list[dict[str, Any]], Way]:
    """Read a prompt (1, T), and greedily what follows it, one token at a time.

    `read` takes a token (1, 1) and returns its logits (1, V) and what to show of it. Return all tokens that were read,
    what each step shows, and transformers' own way, which has read them all. Each step's `difference` is how far its
    logits are from transformers' own.
    """
    ids, steps, written = prompt, list[dict[str, Any]](), []
    for total in range(1, prompt.shape[1] + new_tokens):
        logits, shown = read(ids[:, total - 1 : total])
        written.append(logits)
        steps.append({"total": total, **shown, "next": likeliest(loaded.codec, logits)})
        if total >= ids.shape[1]:
            ids = torch.cat([ids, logits.argmax(dim=-1, keepdim=True)], dim=1)
    ids = ids[:, : len(steps)]
    theirs = Way(loaded.model, {})
    expected = theirs.logits(ids)
    for at, logits in enumerate(written):
        steps[at]["difference"] = far(logits, expected[:, at])
    return ids, steps, theirs


def far(one: Tensor, other: Tensor) -> float:
    """The largest difference of two tensors."""
    return (one - other).abs().max().item()


def joined(steps: Sequence[dict[str, dict[str, Tensor]]], stage: str, name: str) -> Tensor:
    """What a stage made in all steps, (heads, T_total, numbers) of one sequence."""
    return torch.cat([step[stage][name][0] for step in steps], dim=1)


def tiny_model(name: str) -> Loaded:
    """Build a tiny model with seeded random weights, in float32 on the processor."""
    row = TINY[name]
    config = {**row["config"], "vocab_size": 128, **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))}
    source = Source(name, row["title"], "random", config=config)
    return load(source, dtype="float32", device="cpu", attn="eager")


def stack(loaded: Loaded, ids: Tensor) -> dict[str, Any]:
    """What each layer of a model holds after each token: all its bytes, and those of them that are a state's."""
    way, rows = Way(loaded.model, {}), []
    kinds = tuple(layer.kind for layer in loaded.spec.layers)
    for token in ids[0]:
        way.step(token.view(1, 1))
        rows.append([[row.nbytes, row.state_bytes] for row in layer_states(way.cache, kinds)])
    return {"title": loaded.source.title, "kinds": kinds, "bytes": rows}
