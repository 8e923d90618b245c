"""Decode one model in several ways, step by step beside each other: as it is, or with a layer from scratch in it."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from kvviz.device.multiply_adds import MultiplyAdds

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


class Way:
    """A copy of a model whose layers called `name` are wrapped, and the cache that transformers keeps for it."""

    def __init__(self, model: "PreTrainedModel", name: str, wrap: Callable[[nn.Module], Counted] = Counted) -> None:
        from transformers import DynamicCache

        self.model = deepcopy(model)
        self.cache: Cache = DynamicCache(config=model.config)
        self.layers: dict[int, Counted] = {}
        for number, layer in enumerate(self.model.model.layers):
            if hasattr(layer, name):
                self.layers[number] = wrap(getattr(layer, name))
                setattr(layer, name, self.layers[number])

    def step(self, new: Tensor) -> Tensor:
        """Read new tokens (1, T); return the logits of the last one, (1, vocabulary)."""
        logits: Tensor = self.model(new, past_key_values=self.cache, use_cache=True).logits
        return logits[:, -1]

    def multiply_adds(self) -> int:
        """The multiply-adds of the wrapped layers since this was last asked."""
        done = 0
        for layer in self.layers.values():
            done, layer.done = done + layer.done, 0
        return done


def far(one: Tensor, other: Tensor) -> float:
    """The largest difference of two tensors."""
    return (one - other).abs().max().item()


def joined(steps: Sequence[dict[str, dict[str, Tensor]]], stage: str, name: str) -> Tensor:
    """What a stage made in all steps, (heads, T_total, numbers) of one sequence."""
    return torch.cat([step[stage][name][0] for step in steps], dim=1)
