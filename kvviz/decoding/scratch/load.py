"""The transformer from scratch on the weights of a transformers model, which it shares and does not copy."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from kvviz.base.errors import KvvizError
from kvviz.decoding.scratch.design import Design, design_of
from kvviz.decoding.scratch.model import Transformer
from kvviz.decoding.scratch.names import NAMES, From

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Tensors = Mapping[str, torch.Tensor]


def from_transformers(model: "PreTrainedModel") -> Transformer:
    """Build the same model from scratch, on the same weights: each tensor is the model's own, or a view of it.

    Raises KvvizError for a model that can't be built here.
    """
    return from_tensors(model.config.to_dict(), model.state_dict())


def from_tensors(config: Mapping[str, object], tensors: Tensors) -> Transformer:
    """Build a config's model on a checkpoint's tensors by name. Raises KvvizError for a missing one."""
    design = design_of(config)
    with torch.device("meta"):  # shapes alone: no memory, nothing drawn
        model = Transformer(design)
    weights = {name: _tensor(design, name, tensors) for name in model.state_dict()}
    for name, expected in model.state_dict().items():
        if weights[name].shape != expected.shape:
            raise KvvizError(f"{name} is {tuple(weights[name].shape)} and should be {tuple(expected.shape)}")
    model.load_state_dict(weights, assign=True)
    return model.eval()


def _tensor(design: Design, name: str, tensors: Tensors) -> torch.Tensor:
    """The checkpoint's tensor for a parameter of ours, such as blocks.3.attention.key.weight."""
    module, _, suffix = name.rpartition(".")
    layer = re.search(r"\d+", module)
    place = NAMES[design.family][_row_name(module, design)]
    theirs = f"{place.name}.{suffix}".replace("{i}", layer.group() if layer else "")
    tensor = tensors.get(theirs, tensors.get(theirs.partition(".")[2]))  # some files leave the first name out
    if tensor is None:
        raise KvvizError(f"the checkpoint has no {theirs}")
    return _rows_of(design, place, tensor.t() if place.transposed else tensor)


def _row_name(module: str, design: Design) -> str:
    """A module's name in the tables of `names`; a tied head is the table of tokens."""
    return "tokens" if module == "head" and design.tied else re.sub(r"\d+", "{i}", module)


def _rows_of(design: Design, place: From, tensor: torch.Tensor) -> torch.Tensor:
    """The rows of query, key or value in a tensor that holds all three; any other tensor as it is."""
    if place.part is None:
        return tensor
    query, key = design.heads * design.head_dim, design.kv_heads * design.head_dim
    return tensor.split([query, key, key])[place.part]
