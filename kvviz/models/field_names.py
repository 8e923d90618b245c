"""The names that configs use for the same quantity: add a family's own name of a field here.

Most of a family's own names (GPT-2's `n_head`) are declared by its config class in transformers, and `python -m
tools.families` collects them in `catalog/families.json`. This module has the names that published files use in any
family.
"""

from collections.abc import Mapping

# The common name of a field, and its other names.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "hidden_size": ("n_embd", "d_model", "n_embed"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "num_key_value_heads": ("num_kv_heads", "n_head_kv"),
    "max_position_embeddings": ("n_positions", "n_ctx", "seq_length", "max_seq_len", "max_sequence_length"),
}

# In each of the lists below, the first name that a config has is the one that its model code reads.
DECODER_LAYERS = ("decoder_layers", "num_decoder_layers", "num_blocks")
QUERY_HEADS = ("decoder_attention_heads", "num_decoder_attention_heads", "attention_heads", "num_attention_heads")
HEAD_DIM = ("head_dim", "d_head", "attention_head_dim", "kv_channels")
STATE_SIZE = ("mamba_d_state", "ssm_state_size", "state_size")
CONV_KERNEL = ("mamba_d_conv", "conv_kernel")
STATE_GROUPS = ("mamba_n_groups", "mamba_ngroups", "n_groups")
STATE_HEADS = ("mamba_n_heads", "n_mamba_heads", "mamba_num_heads", "num_heads")
MLP_WIDTH = (
    *("decoder_ffn_dim", "ffn_dim", "n_inner", "d_ff", "ffn_hidden_size", "dff", "dim_ff", "intermediate_size"),
)
EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
EXPERTS_PER_TOKEN = (
    *("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_k", "moe_topk", "top_k_experts"),
)
SHARED_EXPERTS = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")

# A config with none of these fields does not state its depth.
STATES_DEPTH = (
    *("num_hidden_layers", "num_layers", *DECODER_LAYERS),
    *("layer_types", "layers_block_type", "hybrid_override_pattern"),
)

# Fields of MLPs and experts that a file may contain although its family's code never reads them.
WIDTHS = (
    *("intermediate_size", "moe_intermediate_size", "shared_intermediate_size", "shared_expert_intermediate_size"),
    *("num_experts", "num_local_experts", "n_routed_experts", "n_shared_experts", "num_shared_experts"),
    *("first_k_dense_replace", "num_dense_layers", "mlp_only_layers", "mlp_layer_types", "decoder_sparse_step"),
    *("moe_layers", "moe_layer_freq", "interleave_moe_layer_step", "intermediate_size_mlp", "q_lora_rank"),
    *("ffn_dim", "n_inner", "d_ff", "dim_ff", "dff", "ffn_hidden_size", "decoder_ffn_dim", "word_embed_proj_dim"),
)
