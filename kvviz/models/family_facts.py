"""The facts of `family_facts.toml`: what a family's model code does with its cache without a field saying so."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class FamilyFacts:
    """The facts of one family; the defaults are those of a family without peculiarities."""

    refusal: str = ""
    caches: bool = True
    attentions_per_layer: int = 1
    depth_is_listed: bool = False
    attention_inputs: int = 1
    layers: str | Mapping[str, Any] = ""
    repeats_kv_heads_if: str = ""
    rounds_head_dim: bool = False
    sliding_kv_factor: int = 1
    sliding_defaults: Mapping[str, int] = field(default_factory=dict)
    mask_field: str = ""
    prompt_field: str = ""
    index_float32: bool = False
    index_positions: int = 0
    index_gates: bool = False
    indexer_period: int = 0
    states_in_cache: bool = True
    counts_positions: bool = True
    limits_every_step: bool = True
    encoder_is_prefix: bool = False
    drafts: bool = False
    caches_hidden_states: bool = False
    crosses_without_window: bool = False


_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_FACTS = {family: FamilyFacts(**facts) for family, facts in _TABLES.items()}


def facts_of(model_type: str) -> FamilyFacts:
    """Return the facts of a family, or the defaults."""
    return _FACTS.get(model_type, FamilyFacts())
