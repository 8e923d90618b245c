"""A decoder in numbers and words, read from a config: what the modules of this package are built from.

Standard library only, so that a page can say which models can be built before anything is loaded. `families.toml`
has the rows of each family; what they do not cover is refused with a sentence.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvviz.base.errors import ConfigError, KvvizError
from kvviz.models.config_fields import shown
from kvviz.models.layers import LayerSpec
from kvviz.models.spec import ModelSpec, decoder_fields


@dataclass(frozen=True)
class Rope:
    """How far RoPE rotates: `theta` sets the angles, `kind` scales them for contexts longer than trained."""

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


_TABLE: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("families.toml").read_text(encoding="utf-8"))
_FLAGS = ("norm_bias", "gated", "qkv_bias", "output_bias", "mlp_bias", "qk_norm", "tied")


def _part_of(row: Mapping[str, Any], part: str) -> dict[str, Any]:
    """A family's rows of `design` or `tensors`, over those of the family that it is like."""
    return {**_TABLE.get(row.get("like", ""), {}).get(part, {}), **row.get(part, {})}


FAMILIES = {name: _part_of(row, "design") for name, row in _TABLE.items()}
TENSORS: dict[str, dict[str, str]] = {name: _part_of(row, "tensors") for name, row in _TABLE.items()}

# Fields that change how a model computes, each with the one value that the modules here implement.
_ONLY: dict[str, dict[str, bool | None]] = {
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
_OTHER_KINDS = {  # what a layer of another kind does, in words
    "sliding": "attends within a sliding window",
    "chunked": "attends within chunks",
    "latent": "keeps a latent row instead of keys and values",
    "linear": "keeps a state instead of keys and values",
    "hybrid": "keeps a state beside keys and values",
    "indexed": "chooses by an index what it attends to",
    "compressed": "compresses the keys beyond its window",
    "hidden": "keeps hidden states instead of keys and values",
    "cross": "attends to an encoder",
    "shared": "reads another layer's keys and values",
    "none": "has no attention",
}
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


class Unbuildable(KvvizError):
    """A model that the modules here can't be, and `why`."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the transformer from scratch can't be this model: {why}; take another model")
        self.why = why


def design_of(config: Mapping[str, object]) -> Design:
    """Read a Hugging Face config. Raises Unbuildable, which names what the modules here can't do, or ConfigError."""
    spec, fields = ModelSpec.from_config(config), decoder_fields(config)
    if fields.given is not config:
        raise Unbuildable(f"its decoder is a part of a larger model, {shown(config.get('model_type'))}")
    row = _row(config, spec, fields.model_type)
    given = {
        name: config.get(of["field"], of.get("default")) if isinstance(of, dict) else of for name, of in row.items()
    }
    _check_only(config, fields.model_type)
    width, activation = fields.size("hidden_size"), given["activation"]
    if str(activation) not in _ACTIVATIONS:
        raise Unbuildable(f"its activation {shown(activation)} is none of {', '.join(_ACTIVATIONS)}")
    return Design(
        family=fields.model_type,
        layers=len(spec.layers),
        width=width,
        heads=_known(spec.heads, "number of attention heads"),
        kv_heads=spec.layers[0].kv_heads,
        head_dim=spec.layers[0].key_dim,
        mlp_width=int(_number("mlp width", given.get("mlp_width"))) or 4 * width,
        vocab=_known(spec.vocab_size, "vocabulary size"),
        context=_known(spec.context, "context length"),
        positions=str(row["positions"]),
        norm=str(row["norm"]),
        eps=_number("eps", given["eps"]),
        activation=_ACTIVATIONS[str(activation)],
        rope=_rope(config, spec.layers[0]) if row["positions"] == "rotary" else None,
        **{name: bool(given.get(name)) for name in _FLAGS},
    )


def check_design(mode: str, config: Mapping[str, object]) -> None:
    """Raise KvvizError, which names the mode, for a config's model that can't be built here."""
    try:
        design_of(config)
    except Unbuildable as error:
        raise KvvizError(f"{mode} can't decode this model: {error.why}; take another model, or other modes") from error


def _row(config: Mapping[str, object], spec: ModelSpec, model_type: str) -> dict[str, Any]:
    """The family's row, provided that every layer is of the kind that `attention.py` implements."""
    odd = next((layer for layer in spec.layers if layer.kind != "full"), None)
    if odd is not None:
        window = f" of {odd.window:,} tokens" if odd.window else ""
        raise Unbuildable(f"layer {spec.layers.index(odd)} {_OTHER_KINDS[odd.kind]}{window}")
    experts = next((name for name in _EXPERTS if config.get(name)), None)
    if experts is not None:
        raise Unbuildable(f"its MLP is a choice of experts ({experts} is {shown(config[experts])})")
    if model_type not in FAMILIES:
        raise Unbuildable(f"it is a {model_type}, and what is written here are {', '.join(FAMILIES)}")
    return FAMILIES[model_type]


def _known(value: int | None, what: str) -> int:
    if value is None:
        raise ConfigError(f"the config has no {what}")
    return value


def _number(what: str, value: object) -> float:
    """The number; 0 for None."""
    number = value or 0
    if not isinstance(number, int | float):
        raise Unbuildable(f"its {what} is {shown(value)}, which is no number")
    return number


def _check_only(config: Mapping[str, object], model_type: str) -> None:
    """Refuse a field whose value asks for a computation that is not written here."""
    for path, wanted in _ONLY.get(model_type, {}).items():
        outer, _, inner = path.rpartition(".")
        values = _part(config, outer) if outer else config
        if values.get(inner, wanted) != wanted:
            raise Unbuildable(f"{path} is {shown(values[inner])}, and only {shown(wanted)} is written here")
    if config.get("quantization_config"):
        raise Unbuildable("its weights are quantized (quantization_config)")


def _part(config: Mapping[str, object], name: str) -> Mapping[str, object]:
    part = config.get(name)
    return part if isinstance(part, Mapping) else {}


def _rope(config: Mapping[str, object], layer: LayerSpec) -> Rope:
    """RoPE's fields, which older files keep in two places."""
    found: dict[str, Any] = {"rope_theta": config.get("rope_theta")}
    found |= {**_part(config, "rope_scaling"), **_part(config, "rope_parameters")}
    kind = found.get("rope_type") or found.get("type") or "default"
    if kind not in _ROPES:
        raise Unbuildable(f"its RoPE is scaled by {shown(kind)}, and {', '.join(_ROPES)} are written here")
    if found.get("partial_rotary_factor", config.get("partial_rotary_factor")) not in (None, 1, 1.0):
        raise Unbuildable("only a part of each head is rotated (partial_rotary_factor)")
    if layer.key_dim % 2:
        raise Unbuildable(f"a head has {layer.key_dim} numbers, and RoPE rotates pairs")
    try:
        return Rope(
            theta=float(found.get("rope_theta") or 10_000.0),
            kind=str(kind),
            factor=float(found.get("factor") or 1.0),
            low=float(found.get("low_freq_factor") or 1.0),
            high=float(found.get("high_freq_factor") or 4.0),
            original_context=int(float(found.get("original_max_position_embeddings") or 8192)),
        )
    except (OverflowError, TypeError, ValueError) as error:
        raise Unbuildable("a field of its RoPE is no number") from error
