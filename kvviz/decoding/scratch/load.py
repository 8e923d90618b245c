"""Weights into the transformer from scratch: from safetensors, or shared with a transformers model, not copied."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from kvviz.base.errors import KvvizError
from kvviz.decoding.scratch.design import Design, check_design, design_of
from kvviz.decoding.scratch.model import Transformer
from kvviz.decoding.scratch.names import NAMES, From
from kvviz.models.sources import read_config

Tensors = Mapping[str, torch.Tensor]


def from_transformers(model: Any) -> Transformer:
    """The same model from scratch, on the same weights: every tensor is the model's own, or a view of it.

    Raises KvvizError for a model that can't be built here.
    """
    return from_tensors(model.config.to_dict(), model.state_dict())


def from_folder(folder: str | Path, *, dtype: str = "float32", device: str = "cpu") -> Transformer:
    """The model of a folder with a config.json and .safetensors files, as the Hugging Face Hub has them."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    folder = Path(folder)
    config = read_config(folder / "config.json")
    check_design(config)
    tensors: dict[str, torch.Tensor] = {}
    try:
        for path in sorted(folder.glob("*.safetensors")):
            tensors |= load_file(path, device=device)
    except (OSError, SafetensorError) as error:
        raise KvvizError(f"the weights in {folder} can't be read ({type(error).__name__})") from error
    if not tensors:
        raise KvvizError(f"{folder} holds no .safetensors file; kvviz loads no other format")
    return from_tensors(config, {name: tensor.to(getattr(torch, dtype)) for name, tensor in tensors.items()})


def from_tensors(config: Mapping[str, Any], tensors: Tensors) -> Transformer:
    """The model of a config, on a checkpoint's tensors by name. Raises KvvizError for one that is not there."""
    design = design_of(config)
    with torch.device("meta"):  # shapes alone: no memory, nothing drawn
        model = Transformer(design)
    weights = {name: _found(design, name, tensors) for name in model.state_dict()}
    for name, expected in model.state_dict().items():
        if weights[name].shape != expected.shape:
            raise KvvizError(f"{name} is {tuple(weights[name].shape)} and should be {tuple(expected.shape)}")
    model.load_state_dict(weights, assign=True)
    return model.eval()


def _found(design: Design, name: str, tensors: Tensors) -> torch.Tensor:
    """The checkpoint's tensor for a parameter of ours, such as blocks.3.attention.key.weight."""
    module, _, suffix = name.rpartition(".")
    layer = re.search(r"\d+", module)
    place = NAMES[design.family][_general(module, design)]
    theirs = f"{place.name}.{suffix}".replace("{i}", layer.group() if layer else "")
    tensor = tensors.get(theirs, tensors.get(theirs.partition(".")[2]))  # some files leave the first name out
    if tensor is None:
        raise KvvizError(f"the checkpoint has no {theirs}")
    return _cut(design, place, tensor.t() if place.transposed else tensor)


def _general(module: str, design: Design) -> str:
    """A module's name as the tables have it; a tied head is the table of tokens."""
    return "tokens" if module == "head" and design.tied else re.sub(r"\d+", "{i}", module)


def _cut(design: Design, place: From, tensor: torch.Tensor) -> torch.Tensor:
    """The rows of query, key or value, where a checkpoint keeps the three in one tensor."""
    if place.part is None:
        return tensor
    query, key = design.heads * design.head_dim, design.kv_heads * design.head_dim
    return tensor.split([query, key, key])[place.part]
