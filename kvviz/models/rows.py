"""Read what a layer keeps beside keys and values that grows with the text: indexers' keys, compressed keys, hashes."""

from collections.abc import Mapping
from dataclasses import dataclass

from kvviz.base.errors import ConfigError
from kvviz.models.config_fields import Fields, checked
from kvviz.models.family_facts import facts_of
from kvviz.models.heads import read_heads, read_key_dim
from kvviz.models.layer_kinds import COMPRESSED, HASHED, HEAVILY_COMPRESSED, INDEXED

INDEXER = "indexer key"


@dataclass(frozen=True)
class Rows:
    """Rows beside keys and values: one of `width` elements for every `every` tokens.

    `waiting`: elements kept of each token whose row is not complete; `overlap`: those kept of the last complete row's
    tokens. `above`: there are rows only of texts longer than this. `element_bytes`: of a row's elements, 0 for those of
    the cache's dtype. Example: an indexer's keys are Rows("indexer key", 128).
    """

    name: str
    width: int
    every: int = 1
    waiting: int = 0
    overlap: int = 0
    above: int = 0
    element_bytes: int = 0

    def count(self, tokens: int) -> int:
        """Complete rows after a number of tokens."""
        return tokens // self.every if tokens > self.above else 0

    def beside(self, tokens: int) -> int:
        """Elements kept beside the complete rows."""
        return tokens % self.every * self.waiting + (self.overlap if self.count(tokens) else 0)


def read_rows(fields: Fields, layer_type: str, index: int, first_of_type: bool) -> tuple[Rows, ...]:
    """Return the rows of one layer. Raises ConfigError for a config without their sizes."""
    if layer_type in _RATES:
        return _compressed(fields, layer_type)
    if layer_type == HASHED:
        hashes = read_heads(fields) * fields.size("num_hashes")
        return (Rows("hash", hashes, above=fields.size("lsh_attn_chunk_length"), element_bytes=8),)
    if layer_type != INDEXED:
        return ()
    facts, width = facts_of(fields.model_type), _index_dim(fields, index)
    keys = Rows(INDEXER, width, element_bytes=4 if facts.index_float32 else 0)
    gates = Rows("indexer gate", width + 1 if facts.index_gates and width else 0)
    positions = Rows("position", facts.index_positions if first_of_type else 0, element_bytes=8)
    return tuple(rows for rows in (keys, gates, positions) if rows.width)


# The usual numbers of tokens that become one key: https://huggingface.co/deepseek-ai/DeepSeek-V4-Flash-Base
_RATES = {COMPRESSED: 4, HEAVILY_COMPRESSED: 128}
_OLD_RATES = {COMPRESSED: "compress_rate_csa", HEAVILY_COMPRESSED: "compress_rate_hca"}


def _compressed(fields: Fields, layer_type: str) -> tuple[Rows, ...]:
    """DeepSeek-V4: every few tokens become one key, made of a projection and a gate of each.

    In "compressed sparse attention" two projections of each token overlap, and an indexer has compressed keys too.
    """
    stated = fields.raw("compress_rates")
    rates = stated if isinstance(stated, Mapping) else _RATES
    rate = fields.optional(_OLD_RATES[layer_type]) or checked("compress_rates", rates.get(layer_type))
    key = read_key_dim(fields)
    if layer_type == HEAVILY_COMPRESSED:
        return (Rows("compressed key", key, every=rate, waiting=2 * key),)
    widths = {"compressed key": key, "compressed indexer key": fields.size("index_head_dim")}
    return tuple(
        Rows(name, width, every=rate, waiting=4 * width, overlap=2 * rate * width) for name, width in widths.items()
    )


def _index_dim(fields: Fields, index: int) -> int:
    """Elements of the indexer's key that a layer keeps per token; 0 for a layer that uses an earlier layer's."""
    modes, period = fields.names("indexer_types"), facts_of(fields.model_type).indexer_period
    if modes is None and period:
        modes = ["full" if i == 0 or (i - 1) % period == 0 else "shared" for i in range(index + 1)]
    if modes is None and (fields.raw("index_topk_pattern") or fields.raw("index_topk_freq") not in (None, 1)):
        raise ConfigError(
            "index_topk_freq says that some layers use others' indexers; give indexer_types, layer by layer"
        )
    if modes is not None and index < len(modes) and modes[index] == "shared":
        return 0
    nested = fields.raw("sparse_attention_config")
    if isinstance(nested, Mapping) and nested.get("sparse_index_dim") is not None:
        return checked("sparse_index_dim", nested["sparse_index_dim"])
    return fields.optional("indexer_head_dim") or fields.size("index_head_dim")
