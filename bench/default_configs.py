"""One config for each architecture that the installed transformers registers, as the dict of a config.json.

It holds the class's defaults. `FIELDS` replaces those that can't be built or run by what published configs of the
family set, each with the reason.
"""

from typing import Any

_PATTERN = ["linear_attention", "linear_attention", "full_attention", "linear_attention"]
_DRAFT = {  # a draft head has no embeddings of its own per layer, and reads all its keys and values from elsewhere
    "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": 0,
    "num_hidden_layers": 4,
    "num_kv_shared_layers": 4,
    "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
}
_QWEN4 = {  # without sizes for the indexer nothing can be built; the embeddings of n-grams are on in the published one
    "indexer_n_heads": 4,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 256,
    "indexer_budget": 2048,
    "indexer_compress_ratio": 16,
    "ple_layer_ids": [2, 21],
    "eos_token_id": 0,
}

FIELDS: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [9, 18, 27]},  # without an attention layer its cache can't count tokens
    "blenderbot": {"encoder_layers": 24},  # as a decoder alone, its cache is laid out for the encoder's layers
    "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4}}},
    "dbrx": {"attn_config": {"kv_n_heads": 8, "clip_qkv": 8.0, "rope_theta": 5e5}},  # no rope_theta by default
    "deepseek_v2": {"num_experts_per_tok": 6, "moe_intermediate_size": 1408},  # none by default; 1407 by default
    "deepseek_v4": {"num_hidden_layers": 6, "compress_ratios": [0, 128, 4, 128, 4, 0]},  # 43 layers take minutes
    "dots1": {"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6},  # no experts by default
    "gemma4_assistant": {"text_config": {"model_type": "gemma4_text", **_DRAFT}},
    "gemma4_unified_assistant": {"text_config": {"model_type": "gemma4_unified_text", **_DRAFT}},
    "glm4_moe": {"head_dim": 128},  # none by default, and its heads don't divide its hidden size
    "granitemoehybrid": {"layer_types": _PATTERN * 8},  # without an attention layer its cache can't count tokens
    "hunyuan_v1_dense": {"head_dim": 128},  # none by default
    "hunyuan_v1_moe": {"head_dim": 128},  # none by default
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv"] * 8},  # none by default
    "ministral": {"head_dim": 128},  # none by default
    "nemotron": {"num_key_value_heads": 8},  # none by default
    "qwen4_exp": {"text_config": _QWEN4},
    "qwen4_exp_text": _QWEN4,
    "xmod": {"is_decoder": True, "default_language": "en_XX"},  # no language by default, so no adapter to run
}
_ENCODERS = """bert bert-generation camembert data2vec-text electra ernie megatron-bert reformer rembert
roberta roberta-prelayernorm roc_bert roformer xlm-roberta xlm-roberta-xl"""
FIELDS |= {name: {"is_decoder": True} for name in _ENCODERS.split()}  # encoders by default
FIELDS["big_bird"] = {"is_decoder": True, "attention_type": "original_full"}  # the sparse one keeps no long prompt
_DECODER = {"model_type": "bert", "is_decoder": True, "add_cross_attention": True}
FIELDS["encoder-decoder"] = {"encoder": {"model_type": "bert"}, "decoder": _DECODER}  # no parts by default
FIELDS["speech-encoder-decoder"] = {"encoder": {"model_type": "wav2vec2"}, "decoder": _DECODER}  # no parts by default
FIELDS["moonshine_streaming"] = {"num_attention_heads": 8, "num_key_value_heads": 8}


def decoders() -> list[str]:
    """The model types that have a causal decoder, in transformers' order."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return list(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def encoder_decoders() -> list[str]:
    """The model types whose decoder attends to an encoder: from text or speech to text."""
    from transformers.models.auto import modeling_auto

    names = [*modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES]
    names += [n for n in modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES if n not in names]
    return [name for name in names if _config(name).is_encoder_decoder]


def default_config(model_type: str, *, alone: bool = False) -> dict[str, Any]:
    """The config of a type; `alone` makes an encoder-decoder's decoder a model of its own, if its class allows that."""
    alone = alone and _config(model_type).is_encoder_decoder
    return _config(model_type, **({"is_encoder_decoder": False} if alone else {})).to_dict()


def _config(model_type: str, **more: Any) -> Any:
    from transformers import AutoConfig

    return AutoConfig.for_model(model_type, **FIELDS.get(model_type, {}), **more)
