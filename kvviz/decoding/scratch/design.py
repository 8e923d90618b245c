"""A decoder in numbers and words, read from a config: what the modules of this package are built from.

Standard library only, so that a page can say which models can be built before anything is loaded. One row of data a
family; what a row does not cover is refused with a sentence.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvviz.base.errors import ConfigError, KvvizError
from kvviz.models.config_fields import shown
from kvviz.models.layers import LayerSpec
from kvviz.models.spec import ModelSpec, decoder_fields


@dataclass(frozen=True)
class Rope:
    """How far RoPE turns: `theta` sets the angles, `kind` how they are changed for contexts longer than trained."""

    theta: float
    kind: str = "default"
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    original_context: int = 8192


@dataclass(frozen=True)
class Design:
    """All that decides how a decoder computes. Sizes are numbers of elements."""

    family: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp_width: int
    vocab: int
    context: int
    positions: str  # learned, rotary, alibi
    norm: str  # layer, rms
    norm_bias: bool
    eps: float
    activation: str  # gelu, gelu_tanh, silu
    gated: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    tied: bool
    rope: Rope | None = None

    def sizes(self, batch: int, new: int, total: int) -> dict[str, int]:
        """What the letters of the shapes in `attention.py` are for this model at one step."""
        numbers = {"H": self.heads, "Hkv": self.kv_heads, "D": self.head_dim, "W": self.width}
        return {"B": batch, "T": new, "T_total": total, **numbers}


@dataclass(frozen=True)
class Of:
    """The value of a config's field, or what the family's config class fills in."""

    field: str
    default: Any


_BIASED = {"norm_bias": True, "qkv_bias": True, "output_bias": True, "mlp_bias": True}
_PLAIN = {"norm_bias": False, "qkv_bias": False, "output_bias": False, "mlp_bias": False}
_GPT2 = {
    **_BIASED,
    "positions": "learned",
    "norm": "layer",
    "eps": Of("layer_norm_epsilon", 1e-5),
    "gated": False,
    "mlp_width": Of("n_inner", None),
    "qk_norm": False,
    "tied": Of("tie_word_embeddings", True),
}
_LLAMA = {
    **_PLAIN,
    "positions": "rotary",
    "norm": "rms",
    "eps": Of("rms_norm_eps", 1e-6),
    "activation": Of("hidden_act", "silu"),
    "gated": True,
    "mlp_width": Of("intermediate_size", 11008),
    "qk_norm": False,
    "tied": Of("tie_word_embeddings", False),
}
_ATTENTION_BIAS = {"qkv_bias": Of("attention_bias", False), "output_bias": Of("attention_bias", False)}
FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": {**_GPT2, "activation": Of("activation_function", "gelu_new")},
    "gpt_bigcode": {**_GPT2, "activation": Of("activation_function", "gelu_pytorch_tanh")},
    "llama": {**_LLAMA, **_ATTENTION_BIAS, "mlp_bias": Of("mlp_bias", False)},
    "mistral": {**_LLAMA, "mlp_width": Of("intermediate_size", 14336)},
    "qwen2": {**_LLAMA, "qkv_bias": True, "mlp_width": Of("intermediate_size", 22016)},
    "qwen3": {**_LLAMA, **_ATTENTION_BIAS, "qk_norm": True, "mlp_width": Of("intermediate_size", 22016)},
    "mpt": {
        **_PLAIN,
        "positions": "alibi",
        "norm": "layer",
        "eps": Of("layer_norm_epsilon", 1e-5),
        "activation": "gelu",
        "gated": False,
        "mlp_width": None,
        "qk_norm": False,
        "tied": Of("tie_word_embeddings", True),
    },
}

# Fields that change how a model computes, in ways that the modules here don't know, and the value that they do know.
_ONLY: dict[str, dict[str, Any]] = {
    "gpt2": {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False},
    "gpt_bigcode": {"scale_attn_weights": True, "multi_query": True, "add_cross_attention": False},
    "mpt": {"attn_config.clip_qkv": None, "attn_config.softmax_scale": None},
}
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}
_ROPES = ("default", "linear", "llama3")
_KEPT = {  # what a layer of another kind does, as it is said in a sentence
    "sliding": "attends within a sliding window",
    "chunked": "attends within chunks",
    "latent": "keeps a latent row instead of keys and values",
    "linear": "keeps a state instead of keys and values",
    "hybrid": "keeps a state beside keys and values",
    "indexed": "chooses by an index what it attends to",
    "cross": "attends to an encoder",
    "shared": "reads another layer's keys and values",
    "none": "has no attention",
}
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


def design_of(config: Mapping[str, Any]) -> Design:
    """Read a Hugging Face config. Raises KvvizError naming what the modules here can't do."""
    spec, fields = ModelSpec.from_config(config), decoder_fields(config)
    if fields.given is not config:
        raise _refusal(f"its decoder is a part of a larger model, {shown(config.get('model_type'))}")
    row = _row(config, spec, str(fields.model_type))
    given = {name: _value(config, value) for name, value in row.items()}
    _check_only(config)
    width = fields.size("hidden_size")
    if given["activation"] not in _ACTIVATIONS:
        raise _refusal(f"its activation {shown(given['activation'])} is none of {', '.join(_ACTIVATIONS)}")
    return Design(
        family=fields.model_type,
        layers=len(spec.layers),
        width=width,
        heads=_known(spec.heads, "number of attention heads"),
        kv_heads=spec.layers[0].kv_heads,
        head_dim=spec.layers[0].key_dim,
        vocab=_known(spec.vocab_size, "vocabulary size"),
        context=_known(spec.context, "context length"),
        rope=_rope(config, spec.layers[0]) if row["positions"] == "rotary" else None,
        **{
            **given,
            "activation": _ACTIVATIONS[given["activation"]],
            "mlp_width": given["mlp_width"] or 4 * width,
        },
    )


def check_design(config: Mapping[str, Any]) -> None:
    """Raises KvvizError where the model of a config can't be built here."""
    design_of(config)


def _row(config: Mapping[str, Any], spec: ModelSpec, model_type: str) -> Mapping[str, Any]:
    """The family's row, where every layer is of the kind that attention here is written for."""
    odd = next((layer for layer in spec.layers if layer.kind != "full"), None)
    if odd is not None:
        window = f" of {odd.window:,} tokens" if odd.window else ""
        raise _refusal(f"layer {spec.layers.index(odd)} {_KEPT[odd.kind]}{window}")
    experts = next((name for name in _EXPERTS if config.get(name)), None)
    if experts is not None:
        raise _refusal(f"its MLP is a choice of experts ({experts} is {shown(config[experts])})")
    if model_type not in FAMILIES:
        raise _refusal(f"it is a {model_type}, and what is written here are {', '.join(FAMILIES)}")
    return FAMILIES[model_type]


def _refusal(why: str) -> KvvizError:
    return KvvizError(f"the transformer from scratch can't be this model: {why}; take another model, or other modes")


def _value(config: Mapping[str, Any], value: Any) -> Any:
    return config.get(value.field, value.default) if isinstance(value, Of) else value


def _known(value: int | None, what: str) -> int:
    if value is None:
        raise ConfigError(f"the config has no {what}")
    return value


def _check_only(config: Mapping[str, Any]) -> None:
    """Refuse a field whose value changes the computation in a way that is not written here."""
    for path, wanted in _ONLY.get(str(config["model_type"]), {}).items():
        outer, _, inner = path.rpartition(".")
        values = (config.get(outer) or {}) if outer else config
        if values.get(inner, wanted) != wanted:
            raise _refusal(f"{path} is {shown(values[inner])}, and only {shown(wanted)} is written here")
    if config.get("quantization_config"):
        raise _refusal("its weights are quantised (quantization_config)")


def _rope(config: Mapping[str, Any], layer: LayerSpec) -> Rope:
    """RoPE's fields, which older files keep in two places."""
    found = {"rope_theta": config.get("rope_theta"), **(config.get("rope_scaling") or {})}
    found |= config.get("rope_parameters") or {}
    kind = found.get("rope_type") or found.get("type") or "default"
    if kind not in _ROPES:
        raise _refusal(f"its RoPE is scaled by {shown(kind)}, and {', '.join(_ROPES)} are written here")
    if found.get("partial_rotary_factor", config.get("partial_rotary_factor")) not in (None, 1, 1.0):
        raise _refusal("only a part of each head is turned (partial_rotary_factor)")
    if layer.key_dim % 2:
        raise _refusal(f"a head has {layer.key_dim} numbers, and RoPE turns pairs")
    try:
        return Rope(
            theta=float(found.get("rope_theta") or 10_000.0),
            kind=kind,
            factor=float(found.get("factor") or 1.0),
            low=float(found.get("low_freq_factor") or 1.0),
            high=float(found.get("high_freq_factor") or 4.0),
            original_context=int(found.get("original_max_position_embeddings") or 8192),
        )
    except (TypeError, ValueError) as error:
        raise _refusal("a field of its RoPE is no number") from error
