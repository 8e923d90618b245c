"""Read the number of attention heads, and the widths of keys and values."""

from collections.abc import Mapping

from kvviz.base.errors import ConfigError
from kvviz.models.config_fields import NAMES, Fields, checked
from kvviz.models.family_facts import facts_of


def query_heads(fields: Fields) -> int | None:
    """Number of the decoder's query heads; None for a decoder without attention."""
    return fields.first(*NAMES["query_heads"])


def read_heads(fields: Fields) -> int:
    """Number of query heads of a decoder that has attention."""
    return query_heads(fields) or fields.size("num_attention_heads")


def read_kv_heads(fields: Fields) -> int:
    """Number of key-value heads: 1 for multi-query attention, fewer than query heads for grouped-query."""
    if fields.raw("multi_query_attention") is False and not fields.known:  # ChatGLM's switch
        return read_heads(fields)
    if fields.raw("multi_query") is True and not fields.flag("new_decoder_architecture"):
        return 1
    nested = fields.raw("attn_config")
    if isinstance(nested, Mapping) and nested.get("kv_n_heads") is not None:
        own = checked("attn_config.kv_n_heads", nested["kv_n_heads"])
        _check_shares("attn_config.kv_n_heads", own, query_heads(fields) or own)
        return own
    flag = facts_of(fields.model_type).repeats_kv_heads_if
    if fields.has("decoder_attention_heads") or (flag and not fields.flag(flag)):
        return read_heads(fields)
    heads, shared = query_heads(fields), fields.optional("num_key_value_heads")
    if shared is None:
        return read_heads(fields)
    _check_shares(fields.name_in_file("num_key_value_heads"), shared, heads or shared)
    return shared


def _check_shares(name: str, shared: int, heads: int) -> None:
    """Raise ConfigError if the query heads can't be shared out among the KV heads, the same number for each."""
    if heads % shared:
        raise ConfigError(f"{name} is {shared}, which has to divide the {heads} query heads that share them")


def read_head_dims(fields: Fields) -> tuple[int, int]:
    """Return the widths of a key and of a value in one head.

    An odd number of rotated elements is refused: rotation works on pairs, so it would make the key wider.
    """
    key, name = read_key_dim(fields), "partial_rotary_factor"
    nested = fields.raw("rope_parameters")
    factor = nested.get(name) if isinstance(nested, Mapping) and name in nested else fields.raw(name)
    rounds = facts_of(fields.model_type).rounds_head_dim
    if isinstance(factor, float | int) and 0 < factor < 1 and int(key * factor) % 2 and not rounds:
        raise ConfigError(f"{name} {factor} of a head dim of {key} is {int(key * factor)} elements; it has to be even")
    return key, fields.optional("v_head_dim") or key


def read_key_dim(fields: Fields) -> int:
    """Width of a key in one head: the stated one, else the hidden size divided by the heads."""
    stated = fields.first(*NAMES["head_dim"])
    if stated is not None:
        return stated
    hidden, heads = fields.size("hidden_size"), read_heads(fields)
    facts = facts_of(fields.model_type)
    hidden *= facts.attention_inputs
    if hidden % heads and not facts.rounds_head_dim:
        raise ConfigError(f"{heads} attention heads do not divide a hidden size of {hidden}; give head_dim")
    sources = (fields.name_in_file(name) for name in ("hidden_size", "num_attention_heads"))
    fields.note("head_dim", hidden // heads, " / ".join(sources))
    return hidden // heads
