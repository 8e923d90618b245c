"""From the fields of a config to one `LayerSpec` per layer: what each layer keeps, and how much of it.

Standard library only. The widths follow from fields, not from the model's name: a rank makes a layer latent, a window
makes it slide, a state size gives it a state. Sources: the modeling_*.py of
https://github.com/huggingface/transformers/tree/main/src/transformers/models and the papers named below.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kvviz.base.errors import ConfigError
from kvviz.models import layer_kinds as patterns
from kvviz.models.config_fields import Fields, checked, shown

KINDS = ("full", "sliding", "chunked", "latent", "linear", "hybrid", "indexed", "cross", "shared", "none")
MOST_LAYERS = 1_000


@dataclass(frozen=True)
class State:
    """What a layer keeps of constant size: `shape` without the batch; float32 whatever the model's dtype, or not."""

    name: str
    shape: tuple[int, ...]
    float32: bool = False

    @property
    def elements(self) -> int:
        """Elements for one sequence."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class LayerSpec:
    """One layer's cache format: for each token it holds, `kv_heads` x (`key_dim` + `value_dim`) elements.

    `window`: tokens that attention can reach (None: all). `index_dim`: elements of an indexer's key, kept beside each
    token, in float32 if `index_float32`. `states`: what does not grow with tokens. `latent`: keys and values are one
    compressed row and its rotary part. `stored`: the same layer as transformers keeps it, where it keeps more or less
    than the architecture needs.
    """

    kind: str
    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None
    index_dim: int = 0
    index_float32: bool = False
    states: tuple[State, ...] = ()
    latent: bool = False
    stored: "LayerSpec | None" = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"layer kind {self.kind!r} is unknown; it is one of {', '.join(KINDS)}")
        for name in ("kv_heads", "key_dim", "value_dim", "index_dim"):
            checked(name, getattr(self, name), least=0)
        if self.window is not None:
            checked("window", self.window, least=1)

    @property
    def as_stored(self) -> "LayerSpec":
        """The layer as transformers keeps it."""
        return self.stored or self


NOTHING = LayerSpec("none", 0, 0, 0)


def read_layers(fields: Fields) -> tuple[LayerSpec, ...]:
    """One LayerSpec per decoder layer; those of cross-attention follow behind the others.

    Raises ConfigError naming the field where the config can't be read.
    """
    _refuse(fields)
    count = layer_count(fields)
    if count > MOST_LAYERS:
        raise ConfigError(f"num_hidden_layers is {shown(count)}; kvviz reads at most {MOST_LAYERS:,} layers")
    types = patterns.layer_types(fields, count)
    layers = [_layer(of_layer(fields, i, kind), kind, i) for i, kind in enumerate(types)]
    for i in _consumers(fields, types):
        layers[i] = replace(NOTHING, kind="shared")
    return (*layers, *_crossing(fields, layers))


def layer_count(fields: Fields) -> int:
    """Layers of the decoder that have a place in the cache."""
    for name in ("decoder_layers", "num_decoder_layers", "num_blocks"):
        if fields.has(name):
            return fields.size(name)
    if isinstance(pattern := fields.raw("hybrid_override_pattern"), str) and not fields.has("layer_types"):
        return len(pattern)
    if fields.model_type == "nemotron_h":
        return len(fields.names("layer_types") or fields.names("layers_block_type") or [])
    if fields.model_type == "longcat_flash":  # two attention blocks in each layer
        return 2 * fields.size("num_layers")
    if fields.has("H_cycles") and not fields.has("num_layers_per_stack"):  # every cycle has a cache of its own
        return fields.size("num_hidden_layers") * fields.size("H_cycles") * (fields.size("L_cycles") + 1)
    return fields.size("num_hidden_layers")


# Types whose caches follow rules of their own that are not written down here.
_OTHER = {
    "blt": "it decodes patches of bytes with several decoders",
    "reformer": "it caches hashes of hidden states",
    "deepseek_v4": "it compresses its keys in steps",
    "xlnet": "it caches hidden states",
    "qwen4_exp_text": "its indexer keeps positions beside its keys",
}


_COUNTS = (
    "num_hidden_layers",
    "num_layers",
    "decoder_layers",
    "num_decoder_layers",
    "num_blocks",
    "layer_types",
    "layers_block_type",
    "hybrid_override_pattern",
)


def _refuse(fields: Fields) -> None:
    if not fields.known:
        raise ConfigError(_stranger(fields))
    if fields.encoder and not (fields.flag("is_decoder") or fields.crossing):
        raise ConfigError(f"is_decoder is not true, so this {fields.model_type} is an encoder, which keeps no KV cache")
    if not fields.inner and not any(fields.stated(name) and fields.has(name) for name in _COUNTS):
        raise ConfigError("the config has no num_hidden_layers; a decoder's config.json gives it")
    why = _OTHER.get(fields.model_type)
    if why:
        raise ConfigError(f"model_type {fields.model_type} can't be read by the formula, because {why}")


def _stranger(fields: Fields) -> str:
    """Why a config of a type that is not known is not read."""
    if "_class_name" in fields.given:
        return "_class_name says that this is a part of a diffusion pipeline, which keeps no KV cache"
    if not fields.model_type:
        return "the config has no model_type, so it does not say which architecture it is"
    if "auto_map" in fields.given:
        return f"auto_map says that {shown(fields.model_type)} brings its own code, which kvviz never runs"
    return f"model_type {shown(fields.model_type)} is no decoder that kvviz knows; see the list of transformers' types"


def of_layer(fields: Fields, index: int, kind: str) -> Fields:
    """The fields as they hold for one layer: its own over the common ones."""
    own = fields.raw("per_layer_config")
    if own is not None:
        if not isinstance(own, Mapping):
            raise ConfigError("per_layer_config maps a layer's number to an object of fields")
        if len(own) > MOST_LAYERS:
            raise ConfigError(f"per_layer_config has {len(own):,} entries; kvviz reads at most {MOST_LAYERS:,} layers")
        changes = next((own[key] for key in own if _is_number(key, index)), None)
        return fields.changed(changes) if changes is not None else fields
    return _of_kind(fields, kind)


def _is_number(key: Any, index: int) -> bool:
    """Whether a key is a layer's number, with zeros before it or not."""
    digits = str(key)[:1000].lstrip("0") or "0"
    return str(key).isdecimal() and digits == str(index)


# Fields with a second value for layers with a window, or for those without.
_SECOND = {
    patterns.SLIDING: "swa_",
    patterns.HYBRID_SLIDING: "swa_",
    patterns.FULL: "global_",
}
_HAVING_SECOND = ("num_attention_heads", "num_key_value_heads", "head_dim", "v_head_dim", "kv_lora_rank")


def _of_kind(fields: Fields, kind: str) -> Fields:
    prefix = _SECOND.get(kind, "")
    named = {name: prefix + name for name in _HAVING_SECOND} | {"num_key_value_heads": f"num_{prefix}key_value_heads"}
    if prefix == "swa_":
        named["num_key_value_heads"] = "swa_num_key_value_heads"
    elif fields.raw("attention_k_eq_v") is False:
        del named["num_key_value_heads"]
    changes = {name: fields.raw(other) for name, other in named.items() if prefix and fields.has(other)}
    if fields.model_type == "dots3_note_text" and prefix == "swa_":
        changes = {"kv_lora_rank": 1024, "qk_rope_head_dim": _swa_rotary(fields), **changes}
    return fields.changed(changes) if changes else fields


def _swa_rotary(fields: Fields) -> int:
    """dots.3's rotary width of layers with a window, where the file does not list its layers."""
    given = fields.optional("swa_qk_rope_head_dim")
    return given or (fields.optional("swa_head_dim") or 256) - (fields.optional("swa_qk_nope_head_dim") or 192)


def _layer(fields: Fields, kind: str, index: int) -> LayerSpec:
    if kind in (patterns.MLP, patterns.MOE):
        return NOTHING
    if kind in (patterns.LINEAR, patterns.CONV):
        layer = LayerSpec("linear", 0, 0, 0, states=read_states(fields, kind))
        own = fields.model_type == "recurrent_gemma"  # its states lie in the model's modules, not in the cache
        return replace(layer, stored=LayerSpec("linear", 0, 0, 0)) if own else layer
    if kind in (patterns.HYBRID, patterns.HYBRID_SLIDING):
        plain = _attention(fields, patterns.SLIDING if kind == patterns.HYBRID_SLIDING else patterns.FULL, index)
        return replace(plain, kind="hybrid", states=read_states(fields, kind))
    return _attention(fields, kind, index)


_KINDS = {
    patterns.FULL: "full",
    patterns.SLIDING: "sliding",
    patterns.CHUNKED: "chunked",
    patterns.INDEXED: "indexed",
}


# KV heads of a sliding layer as a multiple of the stated ones, where the model code has it so.
_SLIDING_HEADS = {"mimo_v2_flash": 2}

# Whose model code makes the indexer's keys in float32 whatever the model's dtype.
_INDEX_FLOAT32 = ("dots3_note_text",)


def _attention(fields: Fields, name: str, number: int) -> LayerSpec:
    if name not in _KINDS:
        raise ConfigError(
            f"layer_types holds {name!r}; kvviz reads {', '.join(_KINDS)}, linear_attention, conv, hybrid"
        )
    kind, window = _KINDS[name], None
    if kind == "sliding":
        window = read_window(fields)
    if kind == "chunked":
        window = fields.size("attention_chunk_size")
    more: dict[str, Any] = {"window": window}
    if kind == "indexed":
        more |= {"index_dim": read_index_dim(fields, number), "index_float32": fields.model_type in _INDEX_FLOAT32}
    if fields.has("kv_lora_rank"):
        # One compressed row and the rotary part of the key, shared by all heads: https://arxiv.org/abs/2405.04434
        rank, rotary = fields.size("kv_lora_rank"), fields.size("qk_rope_head_dim")
        return LayerSpec("latent" if kind == "full" else kind, 1, rank, rotary, **more, latent=True)
    heads = read_kv_heads(fields) * (_SLIDING_HEADS.get(fields.model_type, 1) if kind == "sliding" else 1)
    return _as_kept(fields, LayerSpec(kind, heads, *read_head_dims(fields), **more), number)


def _as_kept(fields: Fields, layer: LayerSpec, index: int) -> LayerSpec:
    """The layer with what transformers keeps of it, where that is something else."""
    crossing = fields.indices("cross_attention_layers") or ()
    if index in crossing:  # keys and values of an image, where there is one
        return replace(layer, kind="cross")
    if fields.model_type == "cpmant":  # keys and values of a learned prompt stand before those of the tokens
        prompt = State("prompt", (2, layer.kv_heads, fields.size("prompt_length"), layer.key_dim))
        return replace(layer, states=(prompt,))
    if fields.model_type in ("openai-gpt", "xlm"):  # their model code has no cache
        return replace(layer, stored=NOTHING)
    if fields.model_type == "falcon" and fields.flag("new_decoder_architecture"):  # heads are repeated before caching
        return replace(layer, stored=replace(layer, kv_heads=read_heads(fields)))
    if fields.model_type == "gpt_neo" and _is_local(fields, index):
        return replace(layer, kind="sliding", window=fields.size("window_size"), stored=layer)
    return layer


def _is_local(fields: Fields, index: int) -> bool:
    """GPT-Neo: `attention_types` repeats lists of "global" and "local"; all are cached alike."""
    types = fields.raw("attention_types") or [[["global", "local"], fields.size("num_hidden_layers")]]
    try:
        for names, times in types:
            count = len(names) * checked("attention_types", times)
            if index < count:
                return names[index % len(names)] == "local"
            index -= count
    except (TypeError, ValueError, LookupError) as error:
        raise ConfigError("attention_types has to list [names, times] for all layers") from error
    raise ConfigError("attention_types has to list [names, times] for all layers")


def read_window(fields: Fields) -> int:
    """Tokens that a sliding layer reaches."""
    if fields.has("local_attention"):  # stated for both directions, of which a decoder has one
        return checked("local_attention // 2", fields.size("local_attention") // 2)
    window = fields.optional("sliding_window") or fields.optional("sliding_window_size")
    if window is None and fields.model_type == "dots3_note_text":
        window = 512
    if window is None:
        raise ConfigError("layers slide, so sliding_window has to be a number of tokens")
    if fields.raw("use_bidirectional_attention") in (True, "all"):
        return window // 2 + 1
    return window


def read_index_dim(fields: Fields, index: int) -> int:
    """Elements of the indexer's key that a layer keeps for each token; 0 where it uses an earlier layer's."""
    modes = fields.names("indexer_types")
    if modes is None and fields.model_type == "hy_v4":  # the first layer and every fourth after it
        modes = ["full" if i == 0 or (i - 1) % 4 == 0 else "shared" for i in range(index + 1)]
    if modes is None and (fields.raw("index_topk_pattern") or fields.raw("index_topk_freq") not in (None, 1)):
        raise ConfigError(
            "index_topk_freq says that some layers use others' indexers; give indexer_types, layer by layer"
        )
    if modes is not None and index < len(modes) and modes[index] == "shared":
        return 0
    return fields.optional("indexer_head_dim") or fields.size("index_head_dim")


_HEADS = ("decoder_attention_heads", "num_decoder_attention_heads", "attention_heads", "num_attention_heads")


def query_heads(fields: Fields) -> int | None:
    """Query heads of the decoder, None where it has none."""
    return next((fields.size(name) for name in _HEADS if fields.has(name)), None)


def read_heads(fields: Fields) -> int:
    """Query heads of a decoder that has them."""
    return query_heads(fields) or fields.size("num_attention_heads")


def read_kv_heads(fields: Fields) -> int:
    """Heads that keys and values have."""
    if fields.raw("multi_query") is True and not fields.flag("new_decoder_architecture"):
        return 1
    nested = fields.raw("attn_config")
    if isinstance(nested, Mapping) and nested.get("kv_n_heads") is not None:
        return checked("attn_config.kv_n_heads", nested["kv_n_heads"])
    if fields.has("decoder_attention_heads"):
        return read_heads(fields)
    if fields.model_type == "falcon" and not fields.flag("new_decoder_architecture"):
        return read_heads(fields)
    return fields.optional("num_key_value_heads") or read_heads(fields)


def read_head_dims(fields: Fields) -> tuple[int, int]:
    """Width of a key and of a value in one head."""
    key = _key_dim(fields)
    _check_rotary(fields, key)
    return key, fields.optional("v_head_dim") or key


def _check_rotary(fields: Fields, dim: int) -> None:
    """Partial rotary positions turn pairs of a key's elements; with an odd number the key would come out wider."""
    name = "partial_rotary_factor"
    nested = fields.raw("rope_parameters")
    factor = nested.get(name) if isinstance(nested, Mapping) and name in nested else fields.raw(name)
    if isinstance(factor, float | int) and 0 < factor < 1 and int(dim * factor) % 2:
        raise ConfigError(f"{name} {factor} of a head dim of {dim} is {int(dim * factor)} elements; it has to be even")


# Attention over the hidden states and the embeddings side by side: https://arxiv.org/abs/2405.16712
_DOUBLE = ("zamba", "zamba2")


def _key_dim(fields: Fields) -> int:
    named = ("head_dim", "d_head", "attention_head_dim", "kv_channels")
    explicit = next((fields.size(name) for name in named if fields.has(name)), None)
    if explicit:
        return explicit
    hidden, heads = fields.size("hidden_size"), read_heads(fields)
    if fields.model_type in _DOUBLE:
        hidden *= 2
    if hidden % heads:
        raise ConfigError(f"{heads} attention heads do not divide a hidden size of {hidden}; give head_dim")
    sources = (fields.origin.get(name, name).partition(",")[0] for name in ("hidden_size", "num_attention_heads"))
    fields.note("head_dim", hidden // heads, " / ".join(sources))
    return hidden // heads


def _consumers(fields: Fields, types: list[str]) -> range:
    """Numbers of the layers that reuse an earlier layer's keys and values."""
    count = len(types)
    sharing = fields.optional("num_kv_shared_layers", least=0) or 0
    if sharing > count:
        raise ConfigError(f"num_kv_shared_layers is {sharing}, more than the {count} layers there are")
    if sharing and set(types[: count - sharing]) != set(types):
        raise ConfigError(f"num_kv_shared_layers is {sharing}, and of some layer type no layer is left that stores")
    return range(count - sharing, count)


def _crossing(fields: Fields, layers: list[LayerSpec]) -> list[LayerSpec]:
    """The layers' keys and values of the encoder's output: written once, as wide as their own."""
    if not crosses(fields):
        return []
    if any(layer.window for layer in layers):
        raise ConfigError("sliding_window of an encoder-decoder: what its cross-attention keeps is not known to kvviz")
    heads, dim = fields.optional("cross_num_key_value_heads"), fields.optional("cross_head_dim")
    return [
        LayerSpec("cross", heads or layer.kv_heads, dim or layer.key_dim, dim or layer.value_dim) for layer in layers
    ]


def crosses(fields: Fields) -> bool:
    """Whether every layer of the decoder attends to an encoder."""
    return fields.crossing or (fields.flag("is_encoder_decoder") and not fields.flag("is_decoder"))


def read_states(fields: Fields, kind: str) -> tuple[State, ...]:
    """The states of constant size that a recurrent or convolving layer keeps for one sequence."""
    for present, read in _STATES:
        if all(fields.has(name) for name in present):
            return read(fields)
    own = {"minimax": _lightning, "rwkv": _receptance, "xlstm": _matrix_memory}.get(fields.model_type)
    if own is not None:
        return own(fields)
    raise ConfigError(f"layers are of type {kind}, and the config has no size of a state that kvviz reads")


def _gated_delta(fields: Fields) -> tuple[State, ...]:
    """Gated DeltaNet: https://arxiv.org/abs/2412.06464."""
    key, value = fields.size("linear_key_head_dim"), fields.size("linear_value_head_dim")
    key_heads, value_heads = fields.size("linear_num_key_heads"), fields.size("linear_num_value_heads")
    channels = 2 * key_heads * key + value_heads * value
    return (
        State("convolution", (channels, fields.size("linear_conv_kernel_dim"))),
        State("recurrent", (value_heads, key, value), float32=True),
    )


def _delta(fields: Fields) -> tuple[State, ...]:
    """Kimi delta attention: https://arxiv.org/abs/2510.26692. A `linear_attn_config` in the file comes first."""
    nested = fields.raw("linear_attn_config")
    own = Fields(nested, "") if isinstance(nested, Mapping) else Fields({}, "")
    heads = own.optional("num_heads") or fields.size("linear_num_heads")
    dim = own.optional("head_dim") or fields.size("linear_head_dim")
    kernel = own.optional("short_conv_kernel_size") or fields.size("linear_conv_kernel_dim")
    return (
        State("convolution", (3 * heads * dim, kernel)),
        State("recurrent", (heads, dim, dim), float32=True),
    )


def _short_conv(fields: Fields) -> tuple[State, ...]:
    """A short convolution over the hidden states: https://arxiv.org/abs/2511.23404."""
    return (State("convolution", (fields.size("hidden_size"), fields.size("conv_L_cache"))),)


def _first(fields: Fields, *names: str) -> int | None:
    return next((fields.size(name) for name in names if fields.has(name)), None)


def _mamba(fields: Fields) -> tuple[State, ...]:
    """Mamba (https://arxiv.org/abs/2312.00752) and, where there are groups, Mamba-2 (https://arxiv.org/abs/2405.21060)."""
    inner = _inner(fields)
    size = _first(fields, "mamba_d_state", "ssm_state_size", "state_size") or 0
    kernel = _first(fields, "mamba_d_conv", "conv_kernel") or 0
    groups = _first(fields, "mamba_n_groups", "mamba_ngroups", "n_groups")
    channels = inner + (2 * groups * size if groups else 0)
    return State("convolution", (channels, kernel)), State("recurrent", (inner, size), float32=True)


def _inner(fields: Fields) -> int:
    """Channels of the state: the heads' widths, or the hidden size widened."""
    heads, dim = _first(fields, "mamba_num_heads"), _first(fields, "mamba_head_dim")
    if heads and dim:
        return heads * dim
    plain = fields.has("state_size") and not fields.has("n_groups")
    given = _first(
        fields, "mamba_d_ssm", *(["intermediate_size"] if plain and fields.stated("intermediate_size") else [])
    )
    factor = fields.number("mamba_expand" if fields.has("mamba_expand") else "expand") if given is None else 1
    return given or int(factor * fields.size("hidden_size"))


def _gated_linear(fields: Fields) -> tuple[State, ...]:
    """Real-gated linear recurrent units: https://arxiv.org/abs/2402.19427."""
    width = fields.optional("lru_width") or fields.size("hidden_size")
    return (
        State("convolution", (width, fields.size("conv1d_width") - 1)),
        State("recurrent", (width,), float32=True),
    )


def _four_convolutions(fields: Fields) -> tuple[State, ...]:
    """Short convolutions over keys, values, and the outputs of attention and MLP, kept in float32."""
    kernel, inner = fields.size("conv_kernel_size"), read_kv_heads(fields) * _key_dim(fields)
    widths = (inner, inner, fields.size("hidden_size"), fields.size("hidden_size"))
    return tuple(State("convolution", (width, kernel), float32=True) for width in widths)


def _compressed_convolution(fields: Fields) -> tuple[State, ...]:
    """Two causal convolutions over queries and keys, and half a value carried over to the next token."""
    dim, kv_heads = _key_dim(fields), read_kv_heads(fields)
    kernel = fields.size("cca_time0") + fields.size("cca_time1") - 2
    return State("convolution", ((read_heads(fields) + kv_heads) * dim, kernel)), State("value", (kv_heads * dim // 2,))


def _lightning(fields: Fields) -> tuple[State, ...]:
    """Lightning attention: https://arxiv.org/abs/2501.08313."""
    heads, dim = read_heads(fields), _key_dim(fields)
    return (State("recurrent", (heads, dim, dim)),)


def _matrix_memory(fields: Fields) -> tuple[State, ...]:
    """xLSTM's matrix memory, its normaliser and its stabiliser: https://arxiv.org/abs/2405.04517."""
    heads, hidden = fields.size("num_heads"), fields.size("hidden_size")
    key, value = (_rounded(hidden * fields.number(name)) // heads for name in ("qk_dim_factor", "v_dim_factor"))
    return State("recurrent", (heads, key, value)), State("recurrent", (heads, key)), State("recurrent", (heads,))


def _rounded(width: float) -> int:
    """A width as its layers round it: up to a multiple of 64."""
    return math.ceil(width / 64) * 64


def _receptance(fields: Fields) -> tuple[State, ...]:
    """RWKV-4: the last hidden states of both blocks, and three running sums: https://arxiv.org/abs/2305.13048."""
    width = fields.optional("attention_hidden_size") or fields.size("hidden_size")
    return State("shift", (2, fields.size("hidden_size"))), State("recurrent", (3, width), float32=True)


_STATES = (
    (("cca_time0", "cca_time1"), _compressed_convolution),
    (("swa_head_dim", "conv_kernel_size"), _four_convolutions),
    (("linear_num_value_heads", "linear_key_head_dim"), _gated_delta),
    (("linear_num_heads", "linear_head_dim"), _delta),
    (("conv_L_cache",), _short_conv),
    (("conv1d_width",), _gated_linear),
    (("mamba_d_state",), _mamba),
    (("ssm_state_size",), _mamba),
    (("state_size",), _mamba),
)
