"""Find the type of each decoder layer (full, sliding, linear, ...) by transformers' names.

A config lists its `layer_types`, states a rule (every sixth layer attends to everything), or leaves the rule to its
family: a period in `family_facts.toml`, or a row of _RULES below. Without any of these, a window or a chunk size
applies to all layers. The families' rules come from the configuration_*.py files in
https://github.com/huggingface/transformers/tree/main/src/transformers/models.
"""

from collections.abc import Callable, Mapping, Sequence

from kvviz.base.errors import ConfigError
from kvviz.models.config_fields import Fields, checked
from kvviz.models.family_facts import facts_of

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
LINEAR, CONV, INDEXED = "linear_attention", "conv", "indexed_attention"
HYBRID, HYBRID_SLIDING = "hybrid", "hybrid_sliding"
MLP, MOE = "mlp", "moe"
COMPRESSED, HEAVILY_COMPRESSED = "compressed_sparse_attention", "heavily_compressed_attention"
HASHED = "hashed_attention"

_OLD_NAMES = {
    "attention": FULL,
    "mamba": LINEAR,
    "deepseek_sparse_attention": INDEXED,
    "qwen_sparse_attention": INDEXED,
    "minimax_m3_sparse": INDEXED,
}

Rule = Callable[[Fields, int], list[str]]


def layer_types(fields: Fields, count: int) -> list[str]:
    """Return the type of each of `count` layers. Raises ConfigError if a list in the config does not fit."""
    listed = fields.names("layer_types") or fields.names("layers_block_type")
    if listed is not None:
        _check_length(listed, count)
        types = [_OLD_NAMES.get(name, name) for name in listed]
        if fields.model_type in ("qwen4_exp_text", "glm5_next_text"):
            return [INDEXED if name == FULL else name for name in types]
        return [*types[:-1], FULL] if fields.model_type in ("gemma4_text", "gemma4_unified_text") else types
    layers = facts_of(fields.model_type).layers
    if layers:
        return [layers] * count if isinstance(layers, str) else _one_of(fields, count, **layers)
    if rule := _RULES.get(fields.model_type):
        return rule(fields, count)
    windowed, chunked = fields.has("sliding_window"), fields.has("attention_chunk_size")
    return [SLIDING if windowed else CHUNKED if chunked else FULL] * count


def _check_length(listed: Sequence[object], count: int) -> None:
    if len(listed) != count:
        raise ConfigError(
            f"layer_types lists {len(listed)} layers and the config says {count}; one name for each layer"
        )


def _one_of(
    fields: Fields,
    count: int,
    every: int,
    field: str = "",
    place: int = -1,
    also: Sequence[int] = (),
    one: str = FULL,
    other: str = SLIDING,
) -> list[str]:
    """Make one layer of `every` the type `one`, as the table in `family_facts.toml` says; the others are `other`."""
    n = (fields.optional(field) if field else None) or every
    return [one if i % n == place % n or i in also or i - count in also else other for i in range(count)]


def uses_window(fields: Fields) -> bool:
    """Whether the config uses its window: only `use_sliding_window: false` turns it off."""
    return fields.raw("use_sliding_window") is None or fields.flag("use_sliding_window")


def _windowed(fields: Fields) -> bool:
    return uses_window(fields) and fields.has("sliding_window")


def _from_max_window_layers(fields: Fields, count: int) -> list[str]:
    """Layers slide from layer `max_window_layers` on, if the config uses its window."""
    first = fields.size("max_window_layers", least=0) if _windowed(fields) else count
    return [FULL if i < first else SLIDING for i in range(count)]


def _qwen2_moe(fields: Fields, count: int) -> list[str]:
    last = fields.size("max_window_layers", least=0) if uses_window(fields) else 0
    return [SLIDING if (i + 1) % 2 and i < last else FULL for i in range(count)]


def _exaone(fields: Fields, count: int) -> list[str]:
    return _one_of(fields, count, 4, "sliding_window_pattern") if fields.has("sliding_window") else [FULL] * count


def _rotated(fields: Fields, count: int) -> list[int]:
    """Return for each layer 1 if its positions are rotary, else 0; the field's name says the opposite of its values."""
    given = fields.indices("no_rope_layers")
    if given:
        if len(given) < count:
            raise ConfigError(f"no_rope_layers has {len(given)} entries for {count} layers; one for each layer")
        return given[:count]
    every = fields.size("no_rope_layer_interval")
    return [int((i + 1) % every != 0) for i in range(count)]


def _llama4(fields: Fields, count: int) -> list[str]:
    return [CHUNKED if rope else FULL for rope in _rotated(fields, count)]


def _smollm3(fields: Fields, count: int) -> list[str]:
    windowed = _windowed(fields)
    return [SLIDING if windowed and not rope else FULL for rope in _rotated(fields, count)]


def _periodic(fields: Fields, count: int, one: str = FULL) -> list[str]:
    period, offset = fields.size("attn_layer_period"), fields.size("attn_layer_offset", least=0)
    return [one if i % period == offset else LINEAR for i in range(count)]


def _bamba(fields: Fields, count: int) -> list[str]:
    attending = fields.indices("attn_layer_indices") or []
    return [FULL if i in attending else LINEAR for i in range(count)]


def _zamba(fields: Fields, count: int) -> list[str]:
    return [LINEAR, LINEAR, HYBRID, *_periodic(fields, count - 3, HYBRID)]


def _zamba2(fields: Fields, count: int) -> list[str]:
    hybrid = {6, 12, 18, 24, 30, 36, 42, 47, 51}
    types = [HYBRID if i in hybrid else LINEAR for i in range(54)]
    _check_length(types, count)
    return types


def _recurrent_gemma(fields: Fields, count: int) -> list[str]:
    block = fields.names("block_types") or ["recurrent"]
    return [LINEAR if name == "recurrent" else SLIDING for name in (block * count)[:count]]


_NEMOTRON_LETTERS = {"M": LINEAR, "*": FULL, "-": MLP, "E": MOE}


def _nemotron_h(fields: Fields, count: int) -> list[str]:
    pattern = fields.raw("hybrid_override_pattern")
    if not isinstance(pattern, str) or set(pattern) - set(_NEMOTRON_LETTERS):
        raise ConfigError("hybrid_override_pattern has to say of each layer M, *, - or E")
    _check_length(pattern, count)
    return [_NEMOTRON_LETTERS[letter] for letter in pattern]


def _lfm2(fields: Fields, count: int) -> list[str]:
    attending = fields.indices("full_attn_idxs")
    return [FULL if attending is None or i in attending else CONV for i in range(count)]


def _lfm3(fields: Fields, count: int) -> list[str]:
    return [FULL if i % 4 == 2 else SLIDING if i % 4 == 0 and i > 0 else CONV for i in range(count)]


def _kimi(fields: Fields, count: int) -> list[str]:
    inner = fields.raw("linear_attn_config")
    if isinstance(inner, dict) and "full_attn_layers" in inner and "kda_layers" in inner:
        part = Fields(inner, "")
        full, linear = (part.indices(name, 1) or [] for name in ("full_attn_layers", "kda_layers"))
        if sorted([*full, *linear]) != list(range(1, count + 1)):
            raise ConfigError(f"linear_attn_config has to name each of the {count} layers once, counted from 1")
        return [FULL if i + 1 in full else LINEAR for i in range(count)]
    return [FULL if i and i % 4 == 0 else LINEAR for i in range(count)]


def _dots3(fields: Fields, count: int) -> list[str]:
    windowed = uses_window(fields)
    return [SLIDING if windowed and not (i < 2 or i % 4 == 1) else INDEXED for i in range(count)]


_COMPRESS_RATIOS = {0: SLIDING, 4: COMPRESSED, 128: HEAVILY_COMPRESSED}


def _deepseek_v4(fields: Fields, count: int) -> list[str]:
    ratios = fields.indices("compress_ratios")
    if ratios is None:
        return [HEAVILY_COMPRESSED if i < 2 or i % 2 == 0 else COMPRESSED for i in range(count)]
    if len(ratios) < count or not _COMPRESS_RATIOS.keys() >= set(ratios):
        raise ConfigError(f"compress_ratios has to say of each of the {count} layers 0, 4 or 128")
    return [_COMPRESS_RATIOS[ratio] for ratio in ratios[:count]]


def _minimax_m3(fields: Fields, count: int) -> list[str]:
    nested = fields.raw("sparse_attention_config")
    sparse = Fields(nested, "").indices("sparse_attention_freq") if isinstance(nested, Mapping) else None
    if sparse is not None:
        _check_length(sparse, count)
    return [INDEXED if one else FULL for one in sparse or [0] * count]


def _reformer(fields: Fields, count: int) -> list[str]:
    kinds = {"local": FULL, "lsh": HASHED}
    listed = fields.names("attn_layers") or []
    if not kinds.keys() >= set(listed):
        raise ConfigError("attn_layers has to say of each layer local or lsh")
    return [kinds[name] for name in listed]


def _inkling(fields: Fields, count: int) -> list[str]:
    local = fields.indices("local_layer_ids")
    inside = set(local) if local is not None else {i for i in range(count) if (i + 1) % 6}
    return [HYBRID_SLIDING if i in inside else HYBRID for i in range(count)]


_RULES: Mapping[str, Rule] = {
    "bamba": _bamba,
    "deepseek_v4": _deepseek_v4,
    "dots1": _from_max_window_layers,
    "dots3_note_text": _dots3,
    "exaone4": _exaone,
    "exaone_moe": _exaone,
    "inkling_text": _inkling,
    "jamba": _periodic,
    "kimi_linear": _kimi,
    "lfm2": _lfm2,
    "lfm3": _lfm3,
    "llama4_text": _llama4,
    "minimax_m3_vl_text": _minimax_m3,
    "nemotron_h": _nemotron_h,
    "olmo_hybrid": lambda fields, count: _one_of(fields, count, min(4, count), other=LINEAR),
    "qwen2": _from_max_window_layers,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _from_max_window_layers,
    "qwen3_moe": lambda fields, count: [SLIDING if _windowed(fields) else FULL] * count,
    "recurrent_gemma": _recurrent_gemma,
    "reformer": _reformer,
    "smollm3": _smollm3,
    "zamba": _zamba,
    "zamba2": _zamba2,
}


def is_masked(fields: Fields, index: int) -> bool:
    """Whether a layer is "local" by `attention_types`: it masks everything beyond its window but caches all tokens.

    The field repeats lists of names: [[["global", "local"], 2]] means global, local, global, local.
    """
    wrong = ConfigError("attention_types has to list [names, times] for all layers")
    runs = fields.raw("attention_types") or [[["global", "local"], index + 1]]
    names: list[object] = []
    try:
        for block, times in runs if isinstance(runs, list | tuple) else ():
            names += list(block[: index + 1]) * min(checked("attention_types", times), index + 1)
            if len(names) > index:
                return names[index] == "local"
    except (TypeError, ValueError) as error:
        raise wrong from error
    raise wrong
