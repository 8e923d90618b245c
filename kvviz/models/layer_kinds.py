"""Find the type of each decoder layer (full, sliding, linear, ...) by transformers' names.

A config lists its `layer_types`, states a rule (every sixth layer attends to everything), or leaves the rule to its
family, which has a row in RULES. Without any of these, a window or a chunk size applies to all layers. The families'
rules come from the configuration_*.py files in
https://github.com/huggingface/transformers/tree/main/src/transformers/models.
"""

from collections.abc import Callable, Sequence

from kvviz.base.errors import ConfigError
from kvviz.models.config_fields import Fields, checked

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
LINEAR, CONV, INDEXED = "linear_attention", "conv", "indexed_attention"
HYBRID, HYBRID_SLIDING = "hybrid", "hybrid_sliding"
MLP, MOE = "mlp", "moe"

_OLD_NAMES = {
    "attention": FULL,
    "mamba": LINEAR,
    "deepseek_sparse_attention": INDEXED,
    "qwen_sparse_attention": INDEXED,
}

Rule = Callable[[Fields, int], list[str]]


def layer_types(fields: Fields, count: int) -> list[str]:
    """Return the type of each of `count` layers. Raises ConfigError if a list in the config does not fit."""
    listed = fields.names("layer_types") or fields.names("layers_block_type")
    if listed is not None:
        _check_length(listed, count)
        types = [_OLD_NAMES.get(name, name) for name in listed]
        if fields.model_type == "qwen4_exp_text":
            return [INDEXED if name == FULL else name for name in types]
        return [*types[:-1], FULL] if fields.model_type in ("gemma4_text", "gemma4_unified_text") else types
    if rule := RULES.get(fields.model_type):
        return rule(fields, count)
    windowed, chunked = fields.has("sliding_window"), fields.has("attention_chunk_size")
    return [SLIDING if windowed else CHUNKED if chunked else FULL] * count


def _check_length(listed: Sequence[str], count: int) -> None:
    if len(listed) != count:
        raise ConfigError(
            f"layer_types lists {len(listed)} layers and the config says {count}; one name for each layer"
        )


def _all(name: str) -> Rule:
    return lambda fields, count: [name] * count


def _one_in(default: int, name: str = "", *, place: int = -1, one: str = FULL, other: str = SLIDING) -> Rule:
    """Make one layer of every n `one`: the last, or with `place` 0 the first. The field `name` can state n."""

    def rule(fields: Fields, count: int) -> list[str]:
        n = (fields.optional(name) if name else None) or default
        return [one if i % n == place % n else other for i in range(count)]

    return rule


def _full_at(is_full: Callable[[int, int], bool], other: str = SLIDING) -> Rule:
    """Make those layers full for whose place and number of layers `is_full` holds."""
    return lambda fields, count: [FULL if is_full(i, count) else other for i in range(count)]


def _exaone(fields: Fields, count: int) -> list[str]:
    pattern = _one_in(4, "sliding_window_pattern")
    return pattern(fields, count) if fields.has("sliding_window") else [FULL] * count


def _from_max_window_layers(fields: Fields, count: int) -> list[str]:
    """Layers slide from layer `max_window_layers` on, if the config uses its window."""
    if not (uses_window(fields) and fields.has("sliding_window")):
        return [FULL] * count
    first = fields.size("max_window_layers", least=0)
    return [FULL if i < first else SLIDING for i in range(count)]


def uses_window(fields: Fields) -> bool:
    """Whether the config uses its window: only `use_sliding_window: false` turns it off."""
    return fields.raw("use_sliding_window") is None or fields.flag("use_sliding_window")


def _qwen2_moe(fields: Fields, count: int) -> list[str]:
    last = fields.size("max_window_layers", least=0) if uses_window(fields) else 0
    return [SLIDING if (i + 1) % 2 and i < last else FULL for i in range(count)]


def _all_or_none(fields: Fields, count: int) -> list[str]:
    return [SLIDING if uses_window(fields) and fields.has("sliding_window") else FULL] * count


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
    windowed = uses_window(fields) and fields.has("sliding_window")
    return [SLIDING if windowed and not rope else FULL for rope in _rotated(fields, count)]


def _periodic(fields: Fields, count: int) -> list[str]:
    period, offset = fields.size("attn_layer_period"), fields.size("attn_layer_offset", least=0)
    return [FULL if i % period == offset else LINEAR for i in range(count)]


def _bamba(fields: Fields, count: int) -> list[str]:
    attending = fields.indices("attn_layer_indices") or []
    return [FULL if i in attending else LINEAR for i in range(count)]


def _zamba(fields: Fields, count: int) -> list[str]:
    period, offset = fields.size("attn_layer_period"), fields.size("attn_layer_offset", least=0)
    rest = [HYBRID if i % period == offset else LINEAR for i in range(count - 3)]
    return [LINEAR, LINEAR, HYBRID, *rest]


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


def _inkling(fields: Fields, count: int) -> list[str]:
    local = fields.indices("local_layer_ids")
    inside = set(local) if local is not None else {i for i in range(count) if (i + 1) % 6}
    return [HYBRID_SLIDING if i in inside else HYBRID for i in range(count)]


# Each rule with the families that have it.
_FAMILIES: tuple[tuple[Rule, tuple[str, ...]], ...] = (
    (_all(FULL), ("cohere_compass_text", "laguna", "mellum", "minimax_m3_vl_text")),
    (_all(HYBRID), ("falcon_h1", "zaya")),
    (_all(INDEXED), ("axk2", "deepseek_v32", "glm_moe_dsa", "hy_v4")),
    (_all(LINEAR), ("falcon_mamba", "granitemoehybrid", "mamba", "mamba2", "rwkv", "xlstm")),
    (_one_in(1, "layer_group_size", other=LINEAR), ("bailing_hybrid",)),
    (_one_in(2), ("gemma2", "gpt_oss", "vaultgemma")),
    (_one_in(2, place=0, other=LINEAR), ("minimax",)),
    (_one_in(3, "global_attn_every_n_layers", place=0), ("modernbert-decoder",)),
    (_one_in(4), ("olmo3",)),
    (_one_in(4, place=0), ("cwm", "granite_swa", "granitemoe_swa")),
    (_one_in(4, "global_attn_every_n_layers"), ("afmoe",)),
    (_one_in(4, "sliding_window_pattern"), ("cohere2",)),
    (_one_in(4, "full_attention_interval", other=LINEAR), ("qwen3_5_moe_text", "qwen3_5_text", "qwen3_next")),
    (_one_in(4, "full_attention_interval", one=INDEXED, other=LINEAR), ("qwen4_exp_text",)),
    (_one_in(5), ("gemma3n_text", "kolibri1")),
    (_one_in(6, "sliding_window_pattern"), ("gemma3_text",)),
    (_one_in(6, one=HYBRID, other=HYBRID_SLIDING), ("inkling2_text",)),
    (_full_at(lambda i, n: i < 2 or i % 4 == 1 or i == n - 1), ("flint",)),
    (_full_at(lambda i, n: i % 6 == 5 or i == n - 1), ("beam", "gemma4_text", "gemma4_unified_text")),
    (_full_at(lambda i, n: i % 6 == 5 or i == 0), ("mimo_v2_flash",)),
    (_full_at(lambda i, n: i % 4 == 3 or (n < 4 and i == n - 1), LINEAR), ("olmo_hybrid",)),
    (_from_max_window_layers, ("dots1", "qwen2", "qwen3")),
    (_exaone, ("exaone4", "exaone_moe")),
    (_bamba, ("bamba",)),
    (_dots3, ("dots3_note_text",)),
    (_inkling, ("inkling_text",)),
    (_kimi, ("kimi_linear",)),
    (_lfm2, ("lfm2",)),
    (_lfm3, ("lfm3",)),
    (_llama4, ("llama4_text",)),
    (_nemotron_h, ("nemotron_h",)),
    (_periodic, ("jamba",)),
    (_qwen2_moe, ("qwen2_moe",)),
    (_all_or_none, ("qwen3_moe",)),
    (_recurrent_gemma, ("recurrent_gemma",)),
    (_smollm3, ("smollm3",)),
    (_zamba, ("zamba",)),
    (_zamba2, ("zamba2",)),
)
RULES = {family: rule for rule, families in _FAMILIES for family in families}


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
