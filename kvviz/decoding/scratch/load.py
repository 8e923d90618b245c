"""The transformer from scratch on the weights of a transformers model (`families.toml` has their names), not copied."""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch

from kvviz.base.errors import KvvizError
from kvviz.decoding.scratch.attention import Attention
from kvviz.decoding.scratch.design import TENSORS, Design, design_of
from kvviz.decoding.scratch.model import Transformer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Tensors = Mapping[str, torch.Tensor]


def from_transformers(model: "PreTrainedModel") -> Transformer:
    """Build the same model on the same tensors, or views of them. Raises KvvizError if it can't be built here."""
    return from_tensors(model.config.to_dict(), model.state_dict())


_Twins = dict[type[Attention], tuple[list[int], Transformer]]  # with the places of the tensors that each was built on
_twins: "WeakKeyDictionary[PreTrainedModel, _Twins]" = WeakKeyDictionary()


def shared_twin(model: "PreTrainedModel", attention: type[Attention] = Attention) -> Transformer:
    """Return the same model on the same tensors, built once as long as these stay where they are.

    It serves every decode of the model, so nobody may change it. Raises KvvizError if it can't be built here.
    """
    places = list(_places(model))
    twins = _twins.setdefault(model, {})
    before, twin = twins.get(attention, ([], None))
    if twin is None or before != places:
        twin = from_tensors(model.config.to_dict(), model.state_dict(), attention)
        twins[attention] = places, twin
    return twin


def _places(module: torch.nn.Module) -> Iterator[int]:
    """Where all parameters lie; `parameters()`, which names and counts them, takes four times as long."""
    for tensor in module._parameters.values():
        if tensor is not None:
            yield tensor.data_ptr()
    for part in module._modules.values():
        if part is not None:
            yield from _places(part)


def from_tensors(config: Mapping[str, object], tensors: Tensors, attention: type[Attention] = Attention) -> Transformer:
    """Build a config's model on a checkpoint's tensors by name. Raises KvvizError for a missing one."""
    design = design_of(config)
    with torch.device("meta"):  # shapes alone: no memory, nothing drawn
        model = Transformer(design, attention)
    weights = {name: _tensor(design, name, tensors) for name in model.state_dict()}
    for name, expected in model.state_dict().items():
        if weights[name].shape != expected.shape:
            raise KvvizError(f"{name} is {tuple(weights[name].shape)} and should be {tuple(expected.shape)}")
    model.load_state_dict(weights, assign=True)
    return model.eval()


def _tensor(design: Design, name: str, tensors: Tensors) -> torch.Tensor:
    """The checkpoint's tensor for a parameter of ours, such as blocks.3.attention.key.weight, or its rows of three."""
    module, _, suffix = name.rpartition(".")
    layer, names = re.search(r"\d+", module), TENSORS[design.family]
    # a tied head is the table of tokens
    row = "tokens" if module == "head" and design.tied else re.sub(r"\d+", "{i}", module)
    theirs = f"{names[row]}.{suffix}".replace("{i}", layer.group() if layer else "")
    tensor = tensors.get(theirs, tensors.get(theirs.partition(".")[2]))  # some files leave the first name out
    if tensor is None:
        raise KvvizError(f"the checkpoint has no {theirs}")
    if design.family == "gpt2" and layer and tensor.dim() == 2:  # stored (in, out), not (out, in)
        tensor = tensor.t()
    together = [ours for ours, named in names.items() if named == names[row]]
    if len(together) == 1:
        return tensor
    query, key = design.heads * design.head_dim, design.kv_heads * design.head_dim
    return tensor.split([query, key, key])[together.index(row)]
