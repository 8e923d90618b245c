"""The transformer from scratch on the weights of a transformers model, which it shares and does not copy.

Tables name each family's tensors: a row maps a module of `model.Transformer` to the checkpoint's; `{i}` is the layer.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from kvviz.base.errors import KvvizError
from kvviz.decoding.scratch.design import Design, design_of
from kvviz.decoding.scratch.model import Transformer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class From:
    """A checkpoint's module. If its rows are query, key and value, one below the other, `part` selects one of them.

    `transposed`: its weight is stored (in, out), as GPT-2's are, instead of (out, in).
    """

    name: str
    part: int | None = None
    transposed: bool = False


def _fused(name: str, transposed: bool = False) -> dict[str, From]:
    parts = ("query", "key", "value")
    return {f"blocks.{{i}}.attention.{part}": From(name, n, transposed) for n, part in enumerate(parts)}


def _gpt2(transposed: bool) -> dict[str, From]:
    return {
        "tokens": From("transformer.wte"),
        "positions.table": From("transformer.wpe"),
        "blocks.{i}.attention_norm": From("transformer.h.{i}.ln_1"),
        **_fused("transformer.h.{i}.attn.c_attn", transposed),
        "blocks.{i}.attention.output": From("transformer.h.{i}.attn.c_proj", transposed=transposed),
        "blocks.{i}.mlp_norm": From("transformer.h.{i}.ln_2"),
        "blocks.{i}.mlp.up": From("transformer.h.{i}.mlp.c_fc", transposed=transposed),
        "blocks.{i}.mlp.down": From("transformer.h.{i}.mlp.c_proj", transposed=transposed),
        "norm": From("transformer.ln_f"),
        "head": From("lm_head"),
    }


_LLAMA = {
    "tokens": From("model.embed_tokens"),
    "blocks.{i}.attention_norm": From("model.layers.{i}.input_layernorm"),
    "blocks.{i}.attention.query": From("model.layers.{i}.self_attn.q_proj"),
    "blocks.{i}.attention.key": From("model.layers.{i}.self_attn.k_proj"),
    "blocks.{i}.attention.value": From("model.layers.{i}.self_attn.v_proj"),
    "blocks.{i}.attention.query_norm": From("model.layers.{i}.self_attn.q_norm"),
    "blocks.{i}.attention.key_norm": From("model.layers.{i}.self_attn.k_norm"),
    "blocks.{i}.attention.output": From("model.layers.{i}.self_attn.o_proj"),
    "blocks.{i}.mlp_norm": From("model.layers.{i}.post_attention_layernorm"),
    "blocks.{i}.mlp.gate": From("model.layers.{i}.mlp.gate_proj"),
    "blocks.{i}.mlp.up": From("model.layers.{i}.mlp.up_proj"),
    "blocks.{i}.mlp.down": From("model.layers.{i}.mlp.down_proj"),
    "norm": From("model.norm"),
    "head": From("lm_head"),
}
_MPT = {
    "tokens": From("transformer.wte"),
    "blocks.{i}.attention_norm": From("transformer.blocks.{i}.norm_1"),
    **_fused("transformer.blocks.{i}.attn.Wqkv"),
    "blocks.{i}.attention.output": From("transformer.blocks.{i}.attn.out_proj"),
    "blocks.{i}.mlp_norm": From("transformer.blocks.{i}.norm_2"),
    "blocks.{i}.mlp.up": From("transformer.blocks.{i}.ffn.up_proj"),
    "blocks.{i}.mlp.down": From("transformer.blocks.{i}.ffn.down_proj"),
    "norm": From("transformer.norm_f"),
    "head": From("lm_head"),
}
NAMES: dict[str, dict[str, From]] = {
    "gpt2": _gpt2(transposed=True),
    "gpt_bigcode": _gpt2(transposed=False),
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "mpt": _MPT,
}


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
