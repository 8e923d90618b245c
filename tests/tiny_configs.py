"""Configs of a few thousand parameters, one or two for each way in which transformers keeps a cache.

They are written as a config.json would be, with the fields that matter; windows are 8 tokens.
"""

from typing import Any

from kvviz.base.errors import ConfigError
from kvviz.models.spec import ModelSpec

_BASE = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 96,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GQA = {**_BASE, "head_dim": 16}
_EXPERTS = {
    "moe_intermediate_size": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "shared_expert_intermediate_size": 32,
}
_LATENT = {
    **_BASE,
    **_EXPERTS,
    "q_lora_rank": 16,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "num_key_value_heads": 4,
}
_INDEXER = {"index_n_heads": 2, "index_head_dim": 16, "index_topk": 4}
_DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
}
_MAMBA2 = {
    "mamba_n_heads": 8,
    "mamba_d_head": 8,
    "mamba_n_groups": 1,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_chunk_size": 8,
}
_STATES = {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "vocab_size": 96, "pad_token_id": 0}
_GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 96, "eos_token_id": 2}
_CROSS = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "vocab_size": 96,
}
_KIMI = {
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "linear_head_dim": 8,
    "linear_num_heads": 2,
    "linear_conv_kernel_dim": 4,
}

# Those that the closed form reads.
READ: dict[str, dict[str, Any]] = {
    "llama": _GQA,  # grouped queries
    "gpt2": _GPT2,  # every head its own keys
    "gpt_bigcode": _GPT2,  # one head of keys
    "falcon": {**_BASE, "num_kv_heads": 2, "new_decoder_architecture": True},
    "roberta": {**_BASE, "is_decoder": True, "pad_token_id": 1},
    "openai-gpt": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 96},  # no cache at all
    "mistral": {**_GQA, "sliding_window": 8},
    "gemma3_text": {**_GQA, "sliding_window": 8, "sliding_window_pattern": 2},
    "llama4_text": {**_GQA, **_EXPERTS, "attention_chunk_size": 8, "intermediate_size_mlp": 32},
    "gemma3n_text": {  # the last two layers read the keys and values of others
        **_GQA,
        "num_hidden_layers": 6,
        "num_kv_shared_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"] * 3,
        "sliding_window": 8,
        "intermediate_size": [64] * 6,
        "vocab_size_per_layer_input": 96,
        "hidden_size_per_layer_input": 8,
        "laurel_rank": 4,
        "altup_num_inputs": 2,
        "activation_sparsity_pattern": [0.0] * 6,
    },
    "deepseek_v3": _LATENT,
    "deepseek_v32": {**_LATENT, **_INDEXER},
    "mamba": _STATES,
    "mamba2": {**_STATES, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 8},
    "falcon_mamba": _STATES,
    "qwen3_next": {**_GQA, **_EXPERTS, **_DELTA},
    "qwen3_5_text": {**_GQA, **_DELTA},
    "olmo_hybrid": {**_GQA, **_DELTA, "linear_num_value_heads": 2},
    "kimi_linear": {**_LATENT, **_KIMI},
    "lfm2": {**_BASE, "layer_types": ["conv", "full_attention"] * 2, "block_ff_dim": 64},
    "minimax": {
        **_GQA,
        "num_local_experts": 2,
        "block_size": 8,
        "layer_types": ["linear_attention", "full_attention"] * 2,
    },
    "jamba": {
        **_BASE,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "num_experts": 2,
        "mamba_d_state": 8,
        "mamba_dt_rank": 4,
        "use_mamba_kernels": False,
    },
    "bamba": {**_BASE, **_MAMBA2, "attn_layer_indices": [1]},
    "granitemoehybrid": {
        **_BASE,
        **_MAMBA2,
        "layer_types": ["linear_attention", "full_attention"] * 2,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 24,
        "position_embedding_type": "rope",
    },
    "falcon_h1": {**_BASE, **_MAMBA2, "mamba_d_ssm": 64},
    "nemotron_h": {
        **_GQA,
        "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
        "ssm_state_size": 8,
        "mamba_num_heads": 8,
        "mamba_head_dim": 8,
        "n_groups": 2,
        "n_routed_experts": 2,
        "moe_intermediate_size": 16,
        "moe_shared_expert_intermediate_size": 16,
        "chunk_size": 8,
    },
    "zamba2": {
        **_BASE,
        "mamba_d_state": 8,
        "n_mamba_heads": 8,
        "mamba_headdim": 8,
        "mamba_ngroups": 1,
        "num_key_value_heads": 4,
        "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
        "num_mem_blocks": 1,
        "chunk_size": 8,
    },
    "t5": {
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 32,
        "num_layers": 3,
        "num_heads": 4,
        "vocab_size": 96,
        "decoder_start_token_id": 0,
    },
    "bart": {**_CROSS, "max_position_embeddings": 64},
    "whisper": {
        **_CROSS,
        "max_source_positions": 50,
        "max_target_positions": 64,
        "num_mel_bins": 8,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
        "suppress_tokens": None,
        "begin_suppress_tokens": None,
    },
}

# Those with caches or rules of their own.
OWN: dict[str, dict[str, Any]] = {
    "cpmant": {  # a prompt of its own stands before every text
        "hidden_size": 32,
        "num_attention_heads": 2,
        "dim_head": 16,
        "dim_ff": 32,
        "num_hidden_layers": 2,
        "vocab_size": 96,
        "prompt_types": 4,
        "prompt_length": 5,
    },
    "deepseek_v4": {
        **_BASE,
        **_EXPERTS,
        **_INDEXER,
        "head_dim": 16,
        "num_key_value_heads": 1,
        "q_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "o_groups": 2,
        "o_lora_rank": 8,
        "sliding_window": 8,
        "layer_types": [
            "sliding_attention",
            "heavily_compressed_attention",
            "compressed_sparse_attention",
            "sliding_attention",
        ],
        "compress_rates": {"heavily_compressed_attention": 16, "compressed_sparse_attention": 4},
        "num_hash_layers": 0,
    },
    "jetmoe": {**_BASE, "num_local_experts": 2, "num_experts_per_tok": 2, "kv_channels": 16},
    "minimax_m3_vl_text": {
        **_GQA,
        **_EXPERTS,
        "layer_types": ["full_attention", "minimax_m3_sparse"] * 2,
        "index_n_heads": 2,
        "index_head_dim": 16,
        "index_block_size": 4,
        "rotary_dim": 8,
    },
    "qwen4_exp_text": {
        **_GQA,
        **_EXPERTS,
        **_DELTA,
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 16,
        "indexer_budget": 8,
        "indexer_compress_ratio": 4,
        "ple_layer_ids": [2],
        "ngram_vocab_size_base": 50,
        "make_ngram_vocab_size_divisible_by": 8,
        "split_ngram_parts": 1,
    },
    "reformer": {
        "is_decoder": True,
        "hidden_size": 32,
        "num_attention_heads": 2,
        "attention_head_size": 16,
        "feed_forward_size": 32,
        "vocab_size": 96,
        "axial_pos_embds_dim": [16, 16],
        "axial_pos_shape": [8, 16],
        "max_position_embeddings": 128,
        "attn_layers": ["local", "lsh"],
        "local_attn_chunk_length": 4,
        "lsh_attn_chunk_length": 4,
        "num_buckets": 2,
    },
    "rwkv": {"hidden_size": 32, "attention_hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 96},
    "t5gemma": {
        "encoder": {"model_type": "t5_gemma_module", **_GQA, "sliding_window": 8},
        "decoder": {"model_type": "t5_gemma_module", **_GQA, "sliding_window": 8},
        "is_encoder_decoder": True,
        "decoder_start_token_id": 1,
    },
    "xlm": {"emb_dim": 32, "n_layers": 2, "n_heads": 2, "vocab_size": 96},  # no cache from step to step
    "xlnet": {"d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 32, "vocab_size": 96, "mem_len": 8},
    "xlstm": {"hidden_size": 128, "num_hidden_layers": 2, "num_heads": 2, "vocab_size": 96, "chunk_size": 8},
}
TINY = {name: {"model_type": name, **fields} for name, fields in (READ | OWN).items()}


def ways_of_keeping(config):
    """How the layers of a config keep keys and values, whatever their widths; its family where that can't be read."""
    try:
        layers = ModelSpec.from_config(config).layers
    except ConfigError:
        return config["model_type"]
    return frozenset((row.kind, row.window is None, row.latent, len(row.states), row.stored is None) for row in layers)
