"""Another function in place of a model's attention, for one forward: transformers' AttentionInterface allows it.

`Watch` uses it to see the weights of attention: the function that it puts there is the model's own one in plain torch
operations (eager), which returns its weights with its result. So nothing is computed a second time.
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from kvviz.base.errors import KvvizError
from kvviz.caches.evicting import Evicting, Rotate

Attend = Callable[..., tuple[torch.Tensor, torch.Tensor | None]]
NAME = "kvviz_watched"
MOST_WEIGHTS = 2**22  # weights of attention that exist at a time during a prefill: 16 MiB in float32


class Replaceable:
    """A model whose attention function can be replaced by another; `usual` is the model's own for a module."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.name, self.model = str(model.config._attn_implementation), model
        parts: list[Any] = [part for part in model.modules() if hasattr(part, "config")]
        self._configs = list({id(part.config): part.config for part in parts}.values())
        self._usual: dict[type[torch.nn.Module], Attend] = {}

    def usual(self, module: torch.nn.Module) -> Attend:
        """Return the function that the model would call in this module."""
        kind = type(module)
        if kind not in self._usual:
            eager = getattr(sys.modules[kind.__module__], "eager_attention_forward", None)
            self._usual[kind] = ALL_ATTENTION_FUNCTIONS.get_interface(self.name, eager)
        return self._usual[kind]

    @contextmanager
    def replaced(self, name: str, attend: Attend) -> Iterator[None]:
        """Call `attend` in place of the model's attention function, which is named `name` for that time."""
        field = "_attn_implementation_internal"
        places = [config.__dict__ for config in self._configs]  # a config's own setter checks every value, and is slow
        before = [(own, own[field]) for own in places]
        ALL_ATTENTION_FUNCTIONS[name] = attend
        try:
            for own, _ in before:
                own[field] = name
            yield
        finally:
            for own, usual in before:
                own[field] = usual
            del ALL_ATTENTION_FUNCTIONS[name]


class Watch:
    """Shows the weights of attention to the `caches` of a model's layers, by layer number, as a forward computes them.

    A prefill is computed some queries at a time, so that all weights of a layer never exist together. Queries whose
    weights no cache asks for go through the model's usual function.
    """

    def __init__(self, model: PreTrainedModel, caches: Mapping[int, Evicting]) -> None:
        self._caches, self._model = caches, Replaceable(model)
        self._rotations: dict[torch.nn.Module, Rotate] = {}
        self._name = f"{NAME}_{self._model.name}"
        if self._model.name in ALL_MASK_ATTENTION_FUNCTIONS:  # layers that are not watched get their usual masks
            AttentionMaskInterface.register(self._name, ALL_MASK_ATTENTION_FUNCTIONS[self._model.name])

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Watch one forward."""
        with self._model.replaced(self._name, self._attend):
            yield

    def _attend(
        self, module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: object, **more: Any
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend with query (B, H, T, D) to what the layer's cache returned; the last T keys are the queries' own."""
        usual = self._model.usual(module)
        cache = self._caches.get(module.layer_idx)
        if cache is None:
            return usual(module, query, key, value, mask, **more)
        new, total = query.shape[2], key.shape[2]
        if cache.meets:
            scaling = more.get("scaling") or query.shape[3] ** -0.5
            if module not in self._rotations:
                self._rotations[module] = rotation(self._model.model, module)
            cache.meet(query, self._rotations[module], scaling)
        unwatched = 0 if cache.queries is None else max(0, new - cache.queries)
        outputs = []

        def part(function: Attend, first: int, end: int) -> torch.Tensor | None:
            seen = total - new + end
            masked = causal(end - first, seen, query)
            rows, keys, values = query[:, :, first:end], key[:, :, :seen], value[:, :, :seen]
            output, weights = function(module, rows, keys, values, masked, **more)
            outputs.append(output)
            return weights

        if unwatched:
            part(usual, 0, unwatched)
        at_once = max(1, MOST_WEIGHTS // (query.shape[0] * query.shape[1] * total))
        for first in range(unwatched, new, at_once):
            end = min(first + at_once, new)
            weights = part(_eager(module), first, end)
            assert weights is not None
            cache.observe(weights, after=new - end)
        cache.settle()
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1), None


def _eager(module: torch.nn.Module) -> Attend:
    """Return a model's attention in plain operations, which returns its weights."""
    found: Attend | None = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    if found is None:
        raise KvvizError(f"{type(module).__name__} does not tell the weights of its attention: take sinks or random")
    return found


def rotation(model: PreTrainedModel, module: torch.nn.Module) -> Rotate:
    """Return how the model rotates the queries and keys of an attention `module`; it leaves them if it has no RoPE.

    A factor by which some models lengthen what they rotate is left out. Raises KvvizError for another kind of rotation.
    """
    rotary = next((part for name, part in model.named_modules() if name.rpartition(".")[2] == "rotary_emb"), None)
    apply: Any = getattr(sys.modules[type(module).__module__], "apply_rotary_pos_emb", None)
    own_way = f"{type(module).__name__} rotates in a way of its own"
    if rotary is None:
        config = model.config.get_text_config()
        if any(getattr(config, name, None) for name in ("rope_theta", "rope_parameters")):
            raise KvvizError(f"{own_way}: take snapkv instead of expected")
        return lambda rows, positions, mean: rows
    kinds = {"layer_type": module.layer_type} if "layer_type" in inspect.signature(rotary.forward).parameters else {}

    def rotate(rows: torch.Tensor, positions: torch.Tensor, mean: bool) -> torch.Tensor:
        # a copy, since some kinds (dynamic, longrope) change with the positions that they are asked for
        config = getattr(rotary, "config", None)
        found = deepcopy(rotary, {id(config): config})(rows, positions[None], **kinds)
        if apply is None or not isinstance(found, tuple):
            raise KvvizError(f"{own_way}: take snapkv instead of expected")
        cos, sin = (x.to(rows.dtype) for x in found)  # (1, positions, D)
        length = (cos[:, :1] ** 2 + sin[:, :1] ** 2).sqrt()
        cos, sin = ((x / length).mean(1, keepdim=True) if mean else x / length for x in (cos, sin))
        rotated, rest = rows.split([cos.shape[-1], rows.shape[-1] - cos.shape[-1]], dim=-1)
        return torch.cat([apply(rotated, rotated, cos, sin)[0], rest], dim=-1)

    return rotate


def causal(new: int, total: int, like: torch.Tensor) -> torch.Tensor | None:
    """What is added to the scores, (1, 1, new, total), so that no query sees a later token; None for a single query."""
    if new == 1:
        return None
    lowest = torch.full((1, 1, new, total), torch.finfo(like.dtype).min, dtype=like.dtype, device=like.device)
    return lowest.triu(total - new + 1)
