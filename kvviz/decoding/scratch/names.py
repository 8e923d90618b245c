"""The names of each family's checkpoint for the modules here: tables, no code per family.

A row maps a module of `model.Transformer` to the checkpoint's module; `{i}` is the layer's number.
"""

from dataclasses import dataclass


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
