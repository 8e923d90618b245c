"""The transformer from scratch on the weights of a transformers model, which it shares and does not copy.

Tables name each family's tensors: a row maps a module of `model.Transformer` to the checkpoint's; `{i}` is the layer.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from kvviz.base.errors import KvvizError
from kvviz.decoding.scratch.design import Design, design_of
from kvviz.decoding.scratch.model import Transformer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Tensors = Mapping[str, torch.Tensor]


def _fused(name: str) -> dict[str, str]:
    """Name one tensor for all three: its rows are query, key and value, one below the other."""
    return {f"blocks.{{i}}.attention.{part}": name for part in ("query", "key", "value")}


_GPT2 = {
    "tokens": "transformer.wte",
    "positions.table": "transformer.wpe",
    "blocks.{i}.attention_norm": "transformer.h.{i}.ln_1",
    **_fused("transformer.h.{i}.attn.c_attn"),
    "blocks.{i}.attention.output": "transformer.h.{i}.attn.c_proj",
    "blocks.{i}.mlp_norm": "transformer.h.{i}.ln_2",
    "blocks.{i}.mlp.up": "transformer.h.{i}.mlp.c_fc",
    "blocks.{i}.mlp.down": "transformer.h.{i}.mlp.c_proj",
    "norm": "transformer.ln_f",
    "head": "lm_head",
}
_LLAMA = {
    "tokens": "model.embed_tokens",
    "blocks.{i}.attention_norm": "model.layers.{i}.input_layernorm",
    "blocks.{i}.attention.query": "model.layers.{i}.self_attn.q_proj",
    "blocks.{i}.attention.key": "model.layers.{i}.self_attn.k_proj",
    "blocks.{i}.attention.value": "model.layers.{i}.self_attn.v_proj",
    "blocks.{i}.attention.query_norm": "model.layers.{i}.self_attn.q_norm",
    "blocks.{i}.attention.key_norm": "model.layers.{i}.self_attn.k_norm",
    "blocks.{i}.attention.output": "model.layers.{i}.self_attn.o_proj",
    "blocks.{i}.mlp_norm": "model.layers.{i}.post_attention_layernorm",
    "blocks.{i}.mlp.gate": "model.layers.{i}.mlp.gate_proj",
    "blocks.{i}.mlp.up": "model.layers.{i}.mlp.up_proj",
    "blocks.{i}.mlp.down": "model.layers.{i}.mlp.down_proj",
    "norm": "model.norm",
    "head": "lm_head",
}
_MPT = {
    "tokens": "transformer.wte",
    "blocks.{i}.attention_norm": "transformer.blocks.{i}.norm_1",
    **_fused("transformer.blocks.{i}.attn.Wqkv"),
    "blocks.{i}.attention.output": "transformer.blocks.{i}.attn.out_proj",
    "blocks.{i}.mlp_norm": "transformer.blocks.{i}.norm_2",
    "blocks.{i}.mlp.up": "transformer.blocks.{i}.ffn.up_proj",
    "blocks.{i}.mlp.down": "transformer.blocks.{i}.ffn.down_proj",
    "norm": "transformer.norm_f",
    "head": "lm_head",
}
NAMES = {
    "gpt2": _GPT2,
    "gpt_bigcode": _GPT2,
    "mpt": _MPT,
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), _LLAMA),
}


def from_transformers(model: "PreTrainedModel") -> Transformer:
    """Build the same model on the same tensors, or views of them. Raises KvvizError if it can't be built here."""
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
    """The checkpoint's tensor for a parameter of ours, such as blocks.3.attention.key.weight, or its rows of three."""
    module, _, suffix = name.rpartition(".")
    layer, names = re.search(r"\d+", module), NAMES[design.family]
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
