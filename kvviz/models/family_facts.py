"""The facts of `family_facts.toml`: what a family's model code does with its cache without a field saying so.

`layer_kinds.py` has the layers that slide or recur by a rule that is no period, `states.py` the sizes of recurrent
states, `field_names.py` the names of fields.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class FamilyFacts:
    """The facts of one family; the defaults are those of a family without peculiarities.

    `refusal`: why the formula can't compute its cache. `caches`: False if its model code keeps no cache.
    `attentions_per_layer`: attention blocks, each with a cache, in what the config counts as one layer.
    `depth_is_listed`: the length of its list of layer types, not num_hidden_layers, is its depth.
    `attention_inputs`: number of hidden states, each of `hidden_size`, that attention reads side by side.

    `layers`: the type of every layer; or one layer of `every` is `one` (full_attention) and the rest are `other`
    (sliding_attention): the last of them or, with `place` 0, the first. `field` can state another number.

    `repeats_kv_heads_if`: the flag that gives it KV heads of its own. It repeats them to the query heads before it
    caches them; without the flag it has as many KV heads as query heads.

    `sliding_kv_factor`: KV heads of a sliding layer, as a multiple of the stated number.
    `sliding_defaults`: values that its config class sets for the sliding layers.
    `mask_field`: the window beyond which its "local" layers mask what they have cached (`layer_kinds.is_masked`).
    `prompt_field`: the length of a learned prompt whose keys and values are cached before those of the tokens.
    `index_float32`: the indexer's keys are float32 whatever the model's dtype.
    `indexer_period`: the first layer and every n-th after it have an indexer of their own; 0: every layer.
    `states_in_cache`: False if recurrent states are kept in the model's modules.
    `encoder_is_prefix`: its decoder reads the encoder's output as a prefix, without cross-attention.
    """

    refusal: str = ""
    caches: bool = True
    attentions_per_layer: int = 1
    depth_is_listed: bool = False
    attention_inputs: int = 1
    layers: str | Mapping[str, Any] = ""
    repeats_kv_heads_if: str = ""
    sliding_kv_factor: int = 1
    sliding_defaults: Mapping[str, int] = field(default_factory=dict)
    mask_field: str = ""
    prompt_field: str = ""
    index_float32: bool = False
    indexer_period: int = 0
    states_in_cache: bool = True
    encoder_is_prefix: bool = False


_USUAL = FamilyFacts()
_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_FACTS = {family: FamilyFacts(**facts) for family, facts in _TABLES.items()}


def facts_of(model_type: str) -> FamilyFacts:
    """Return the facts of a family, or the defaults."""
    return _FACTS.get(model_type, _USUAL)
