"""Turn the fields of a config into one `LayerSpec` per layer: what each layer keeps, and how much of it.

Widths follow from fields: a rank makes a layer latent, a window makes it slide, a state size gives it a state.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kvviz.base.errors import ConfigError
from kvviz.models import layer_kinds
from kvviz.models.config_fields import NAMES, Fields, checked, shown
from kvviz.models.custom_code import check_plain, is_custom
from kvviz.models.family_facts import facts_of
from kvviz.models.heads import read_head_dims, read_heads, read_key_dim, read_kv_heads
from kvviz.models.rows import INDEXER, Rows, read_rows
from kvviz.models.states import State, read_ngram_states, read_states

KINDS = (
    *("full", "sliding", "chunked", "latent", "linear", "hybrid", "indexed", "compressed", "hidden"),
    *("cross", "shared", "none"),
)
MOST_LAYERS = 1_000


@dataclass(frozen=True)
class LayerSpec:
    """One layer's cache format: `kv_heads` x (`key_dim` + `value_dim`) elements for each token it holds.

    `window`: tokens that attention can reach (None: all). `rows`: what grows with tokens beside keys and values, such
    as an indexer's keys. `states`: tensors that do not grow with tokens. `latent`: keys and values are one compressed
    row and its rotary part. `stored`: the layer as transformers keeps it, if that is more or less than the
    architecture needs. Example: a layer of Llama 3.1-8B is LayerSpec("full", 8, 128, 128).
    """

    kind: str
    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None
    rows: tuple[Rows, ...] = ()
    states: tuple[State, ...] = ()
    latent: bool = False
    stored: "LayerSpec | None" = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"layer kind {self.kind!r} is unknown; it is one of {', '.join(KINDS)}")
        for name in ("kv_heads", "key_dim", "value_dim"):
            checked(name, getattr(self, name), least=0)
        if self.window is not None:
            checked("window", self.window, least=1)

    @property
    def index_dim(self) -> int:
        """Elements of an indexer's key; 0 for a layer without an indexer of its own."""
        return next((row.width for row in self.rows if row.name == INDEXER), 0)

    @property
    def as_stored(self) -> "LayerSpec":
        """The layer as transformers keeps it."""
        return self.stored or self


NOTHING = LayerSpec("none", 0, 0, 0)


def read_layers(fields: Fields) -> tuple[LayerSpec, ...]:
    """Return one LayerSpec per decoder layer, then one per cross-attention layer.

    Raises ConfigError naming the field that can't be read.
    """
    _refuse(fields)
    count = layer_count(fields)
    if count > MOST_LAYERS:
        raise ConfigError(f"num_hidden_layers is {shown(count)}; kvviz reads at most {MOST_LAYERS:,} layers")
    types = layer_kinds.layer_types(fields, count)
    layers = [
        _layer(of_layer(fields, i, of_type), of_type, i, i == types.index(of_type)) for i, of_type in enumerate(types)
    ]
    for i in _sharing_layers(fields, types):
        layers[i] = replace(NOTHING, kind="shared")
    return (*layers, *_cross_layers(fields, layers))


def layer_count(fields: Fields) -> int:
    """Number of decoder layers that have a place in the cache."""
    stated, facts = fields.first(*NAMES["decoder_layers"]), facts_of(fields.model_type)
    if facts.caches_hidden_states and (listed := fields.names("attn_layers")) is not None:
        return len(listed)
    if stated is not None:
        return stated
    if isinstance(pattern := fields.raw("hybrid_override_pattern"), str) and not fields.has("layer_types"):
        return len(pattern)
    if facts.depth_is_listed:
        return len(fields.names("layer_types") or fields.names("layers_block_type") or [])
    if fields.has("H_cycles") and not fields.has("num_layers_per_stack"):  # every cycle has a cache of its own
        return fields.size("num_hidden_layers") * fields.size("H_cycles") * (fields.size("L_cycles") + 1)
    if facts.attentions_per_layer > 1:
        return facts.attentions_per_layer * fields.size("num_layers")
    return fields.size("num_hidden_layers")


def _refuse(fields: Fields) -> None:
    """Raise ConfigError for a config whose cache the formula can't compute."""
    if is_custom(fields):
        check_plain(fields)
    elif not fields.known:
        raise ConfigError(_why_unknown(fields))
    if fields.encoder and not (fields.flag("is_decoder") or fields.crossing):
        raise ConfigError(f"is_decoder is not true, so this {fields.model_type} is an encoder, which keeps no KV cache")
    if not fields.inner and not any(fields.stated(name) and fields.has(name) for name in NAMES["states_depth"]):
        raise ConfigError("the config has no num_hidden_layers; a decoder's config.json gives it")


def _why_unknown(fields: Fields) -> str:
    if "_class_name" in fields.given:
        return "_class_name says that this is a part of a diffusion pipeline, which keeps no KV cache"
    if base := fields.given.get("base_model_name_or_path"):
        return f"this is the config of an adapter, which keeps no cache: give that of its base, {shown(base)}"
    if not fields.model_type:
        return "the config has no model_type, so it does not say which architecture it is"
    return f"model_type {shown(fields.model_type)} is no decoder that kvviz knows; see the list of transformers' types"


def of_layer(fields: Fields, index: int, layer_type: str) -> Fields:
    """Return the fields for one layer: its own override the common ones."""
    own = fields.raw("per_layer_config")
    if own is None:
        return _of_type(fields, layer_type)
    if not isinstance(own, Mapping):
        raise ConfigError("per_layer_config maps a layer's number to an object of fields")
    if len(own) > MOST_LAYERS:
        raise ConfigError(f"per_layer_config has {len(own):,} entries; kvviz reads at most {MOST_LAYERS:,} layers")
    number = re.compile(f"0*{index}")  # "07" is layer 7
    changes = next((own[key] for key in own if number.fullmatch(str(key))), None)
    return fields.changed(changes) if changes is not None else fields


# Fields with a separate value for layers with, or without, a window, and the prefix of that value's name.
_SECOND_VALUES = ("num_attention_heads", "num_key_value_heads", "head_dim", "v_head_dim", "kv_lora_rank")
_PREFIXES = {layer_kinds.SLIDING: "swa_", layer_kinds.HYBRID_SLIDING: "swa_", layer_kinds.FULL: "global_"}


def _of_type(fields: Fields, layer_type: str) -> Fields:
    """Replace fields by the separate values for a layer's type, for example `head_dim` by `swa_head_dim`."""
    prefix = _PREFIXES.get(layer_type)
    if prefix is None:
        return fields
    second, usual = {name: prefix + name for name in _SECOND_VALUES}, facts_of(fields.model_type).sliding_defaults
    changes: dict[str, object] = {}
    if prefix == "swa_" and usual:  # the rank and the rotary width that the config class sets for sliding layers
        rotary = fields.optional("swa_qk_rope_head_dim")
        if rotary is None:
            whole, plain = (fields.optional(n) or usual[n] for n in ("swa_head_dim", "swa_qk_nope_head_dim"))
            rotary = whole - plain
        changes = {"kv_lora_rank": usual["kv_lora_rank"], "qk_rope_head_dim": rotary}
    elif prefix == "global_" and fields.raw("attention_k_eq_v") is False:
        del second["num_key_value_heads"]
    elif prefix == "global_":
        second["num_key_value_heads"] = "num_global_key_value_heads"
    changes |= {name: fields.raw(other) for name, other in second.items() if fields.has(other)}
    return fields.changed(changes) if changes else fields


def _layer(fields: Fields, layer_type: str, index: int, first_of_type: bool) -> LayerSpec:
    if layer_type in (layer_kinds.MLP, layer_kinds.MOE):
        return NOTHING
    if layer_type in (layer_kinds.LINEAR, layer_kinds.CONV):
        empty = LayerSpec("linear", 0, 0, 0)
        layer = replace(empty, states=read_states(fields, layer_type) + read_ngram_states(fields, index))
        return layer if facts_of(fields.model_type).states_in_cache else replace(layer, stored=empty)
    if layer_type in (layer_kinds.HYBRID, layer_kinds.HYBRID_SLIDING):
        attending = layer_kinds.SLIDING if layer_type == layer_kinds.HYBRID_SLIDING else layer_kinds.FULL
        return replace(_attention(fields, attending, index), kind="hybrid", states=read_states(fields, layer_type))
    rows = read_rows(fields, layer_type, index, first_of_type)
    if facts_of(fields.model_type).caches_hidden_states:
        return replace(_hidden_states(fields), rows=rows)
    return replace(_attention(fields, layer_type, index), rows=rows)


_KINDS = {f"{kind}_attention": kind for kind in ("full", "sliding", "chunked", "indexed")}
_COMPRESSED = (layer_kinds.COMPRESSED, layer_kinds.HEAVILY_COMPRESSED)


def _hidden_states(fields: Fields) -> LayerSpec:
    """Read a layer that keeps the tokens' hidden states, and projects them anew for each step."""
    if fields.optional("reuse_len", least=0):
        raise ConfigError("reuse_len keeps only the beginning of each input; kvviz reads a cache that keeps its end")
    if fields.raw("use_mems_eval") is False:
        return NOTHING
    length = fields.optional("mem_len", least=0)  # of the tokens before the newest, which attends to itself too
    return LayerSpec("hidden", 1, fields.size("hidden_size"), 0, length + 1 if length else None)


def _key_and_value_in_one(fields: Fields, layer_type: str) -> LayerSpec:
    """Read a layer of DeepSeek-V4, whose one row is key and value; beyond its window it attends to compressed rows."""
    dim, window = read_key_dim(fields), fields.size("sliding_window")
    if layer_type in _COMPRESSED:
        return LayerSpec("compressed", 1, dim, 0, window)
    if layer_type != layer_kinds.SLIDING:
        raise ConfigError(
            f"layer_types holds {layer_type!r}; deepseek_v4 has {', '.join(_COMPRESSED)} and sliding ones"
        )
    return LayerSpec("sliding", 1, dim, 0, window, stored=LayerSpec("sliding", 1, dim, dim, window))  # kept as both


def _attention(fields: Fields, layer_type: str, index: int) -> LayerSpec:
    """Read a layer that attends: its keys and values, and its window."""
    if layer_type in _COMPRESSED or fields.model_type == "deepseek_v4":
        return _key_and_value_in_one(fields, layer_type)
    kind, facts = _KINDS.get(layer_type, ""), facts_of(fields.model_type)
    if not kind:
        raise ConfigError(
            f"layer_types holds {layer_type!r}; kvviz reads {', '.join(_KINDS)}, linear_attention, conv, hybrid"
        )
    window = read_window(fields, kind)
    latent = fields.has("kv_lora_rank")
    if latent:
        # one compressed row and the rotary part of the key, shared by all heads: https://arxiv.org/abs/2405.04434
        kind = "latent" if kind == "full" else kind
        heads, key, value = 1, fields.size("kv_lora_rank"), fields.size("qk_rope_head_dim", least=0)
    else:
        heads = read_kv_heads(fields) * (facts.sliding_kv_factor if kind == "sliding" else 1)
        key, value = read_head_dims(fields)
    layer = LayerSpec(kind, heads, key, value, window, latent=latent)
    return layer if latent else _as_kept(fields, layer, index)


def _as_kept(fields: Fields, layer: LayerSpec, index: int) -> LayerSpec:
    """Add what transformers keeps of the layer, if that differs from the layer itself."""
    facts = facts_of(fields.model_type)
    if index in (fields.indices("cross_attention_layers") or ()):  # keys and values of an image, if there is one
        return replace(layer, kind="cross")
    if facts.prompt_field:
        prompt = State("prompt", (2, layer.kv_heads, fields.size(facts.prompt_field), layer.key_dim))
        return replace(layer, states=(prompt,))
    if not facts.caches:
        return replace(layer, stored=NOTHING)
    if facts.repeats_kv_heads_if and fields.flag(facts.repeats_kv_heads_if):
        return replace(layer, stored=replace(layer, kv_heads=read_heads(fields)))
    if facts.mask_field and layer_kinds.is_masked(fields, index):
        return replace(layer, kind="sliding", window=fields.size(facts.mask_field), stored=layer)
    return layer


def read_window(fields: Fields, kind: str) -> int | None:
    """Number of tokens that a layer reaches; None for all."""
    if kind == "chunked":
        return fields.size("attention_chunk_size")
    if kind != "sliding":
        return None
    if fields.has("local_attention"):  # the field counts both directions, of which a decoder has one
        return checked("local_attention // 2", fields.size("local_attention") // 2)
    window = fields.optional("sliding_window") or fields.optional("sliding_window_size")
    window = window or facts_of(fields.model_type).sliding_defaults.get("sliding_window")
    if window is None:
        raise ConfigError("layers slide, so sliding_window has to be a number of tokens")
    if fields.raw("use_bidirectional_attention") in (True, "all"):
        return window // 2 + 1
    return window


def _sharing_layers(fields: Fields, types: list[str]) -> range:
    """Return the numbers of the layers that reuse an earlier layer's keys and values."""
    count = len(types)
    sharing = fields.optional("num_kv_shared_layers", least=0) or 0
    if fields.drafting:  # all of them read the keys and values of the model that it drafts for
        return range(count)
    if sharing > count:
        raise ConfigError(f"num_kv_shared_layers is {sharing}, more than the {count} layers there are")
    if sharing and set(types[: count - sharing]) != set(types):
        raise ConfigError(f"num_kv_shared_layers is {sharing}, and of some layer type no layer is left that stores")
    return range(count - sharing, count)


def _cross_layers(fields: Fields, layers: list[LayerSpec]) -> list[LayerSpec]:
    """Return the layers' keys and values of the encoder's output: written once, as wide as their own."""
    if not crosses(fields):
        return []
    if any(layer.window for layer in layers) and not facts_of(fields.model_type).crosses_without_window:
        raise ConfigError("sliding_window of an encoder-decoder: what its cross-attention keeps is not known to kvviz")
    heads, dim = fields.optional("cross_num_key_value_heads"), fields.optional("cross_head_dim")
    sizes = ((heads or layer.kv_heads, dim or layer.key_dim, dim or layer.value_dim) for layer in layers)
    return [LayerSpec("cross", *size) for size in sizes]


def crosses(fields: Fields) -> bool:
    """Whether every layer of the decoder attends to an encoder."""
    return fields.crossing or (fields.flag("is_encoder_decoder") and not fields.flag("is_decoder"))
