"""What a family's model code does with its cache without any field of the config saying so: one row per family.

The source is the modeling_*.py and configuration_*.py of each family under
https://github.com/huggingface/transformers/tree/main/src/transformers/models. `layer_kinds.py` has the layers that
slide or recur, `states.py` the sizes of recurrent states, `field_names.py` the names of fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class FamilyFacts:
    """The facts of one family; the defaults are those of a family without peculiarities.

    `refusal`: why the formula can't compute its cache. `caches`: False if its model code keeps no cache.
    `attentions_per_layer`: attention blocks, each with a cache, in what the config counts as one layer.
    `depth_is_listed`: the length of its list of layer types, not num_hidden_layers, is its depth.
    `attention_inputs`: number of hidden states, each of `hidden_size`, that attention reads side by side.

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
    repeats_kv_heads_if: str = ""
    sliding_kv_factor: int = 1
    sliding_defaults: Mapping[str, int] = field(default_factory=dict)
    mask_field: str = ""
    prompt_field: str = ""
    index_float32: bool = False
    indexer_period: int = 0
    states_in_cache: bool = True
    encoder_is_prefix: bool = False


USUAL = FamilyFacts()

FACTS: Mapping[str, FamilyFacts] = {
    "blt": FamilyFacts(refusal="it decodes patches of bytes with several decoders"),
    "cpmant": FamilyFacts(prompt_field="prompt_length"),
    "deepseek_v4": FamilyFacts(refusal="it compresses its keys in steps"),
    "dots3_note_text": FamilyFacts(
        index_float32=True,
        sliding_defaults={
            "sliding_window": 512,
            "kv_lora_rank": 1024,
            "swa_head_dim": 256,
            "swa_qk_nope_head_dim": 192,
        },
    ),
    "falcon": FamilyFacts(repeats_kv_heads_if="new_decoder_architecture"),
    "gpt_neo": FamilyFacts(mask_field="window_size"),
    "hy_v4": FamilyFacts(indexer_period=4),
    "longcat_flash": FamilyFacts(attentions_per_layer=2),
    "mimo_v2_flash": FamilyFacts(sliding_kv_factor=2),
    "musicgen_melody": FamilyFacts(encoder_is_prefix=True),
    "nemotron_h": FamilyFacts(depth_is_listed=True),
    "openai-gpt": FamilyFacts(caches=False),
    "qwen4_exp_text": FamilyFacts(refusal="its indexer keeps positions beside its keys"),
    "recurrent_gemma": FamilyFacts(states_in_cache=False),
    "reformer": FamilyFacts(refusal="it caches hashes of hidden states"),
    "xlm": FamilyFacts(caches=False),
    "xlnet": FamilyFacts(refusal="it caches hidden states"),
    "zamba": FamilyFacts(attention_inputs=2),  # hidden states and embeddings: https://arxiv.org/abs/2405.16712
    "zamba2": FamilyFacts(attention_inputs=2),
}


def facts_of(model_type: str) -> FamilyFacts:
    """Return the row of a family, or the defaults."""
    return FACTS.get(model_type, USUAL)
