"""Write kvviz/models/catalog/families.json: what transformers' config classes add to a published config.

A published config.json leaves out fields that have its class's defaults. For each model_type the file has the defaults
of the fields that decide a cache's size, the family's own names of common fields, the fields that its code never reads,
and the types of a composite config's parts. Run `python -m tools.families` after an update of transformers.
"""

import dataclasses
import importlib
import inspect
import json
import re
from collections.abc import Container
from typing import Any

import transformers
from transformers import CONFIG_MAPPING
from transformers.models.auto import modeling_auto as auto

from kvviz.models.catalog.rows import HERE
from kvviz.models.config_fields import NAMES

# Fields that decide what a cache holds, and the vocabulary and context that a page shows.
WANTED = re.compile(
    r"^(num_hidden_layers|n_layers?|num_layers|num_decoder_layers|decoder_layers|num_blocks|num_layers_per_stack"
    r"|hidden_size|n_embd|d_model|num_attention_heads|n_heads?|num_heads|decoder_attention_heads|attention_heads"
    r"|num_decoder_attention_heads|num_attention_heads_per_layer|num_key_value_heads|num_kv_heads"
    r"|(global_|v_|attention_|swa_)?head_dim|d_kv|dim_head|d_head|head_size|swa_num_key_value_heads|swa_v_head_dim"
    r"|num_global_key_value_heads|attention_k_eq_v|multi_query|new_decoder_architecture|kv_lora_rank"
    r"|qk_rope_head_dim|qk_nope_head_dim|qk_head_dim|sliding_window(_size|_pattern)?|use_sliding_window"
    r"|max_window_layers|attention_chunk_size|local_attention|attention_window_size|window_size|attention_types"
    r"|layer_types|global_attn_every_n_layers|num_kv_shared_layers|index_head_dim|indexer_types|indexer_head_dim"
    r"|index_n_heads|linear_\w+|mamba_\w+|n_mamba_heads|state_size|conv_kernel(_size)?|expand|n_groups|conv_L_cache"
    r"|short_conv_kernel_size|attn_layer_\w+|layers_block_type|block_types|lru_width|conv1d_width|time_step_rank"
    r"|full_attn_idxs|no_rope_layers|no_rope_layer_interval|local_layer_ids|layer_group_size|attention_hidden_size"
    r"|embedding_dim|qk_dim_factor|v_dim_factor|ssm_state_size|cca_\w+|vocab_size|max_position_embeddings|n_positions"
    r"|seq_length|max_seq_len|max_target_positions|max_source_positions|is_encoder_decoder|is_decoder|H_cycles|L_cycles|hc_count"
    r"|prefix_dense_sliding_window_pattern|d_rel|ple_\w+|ngram_size|heads_per_ngram|compress_rates|index_topk_freq"
    r"|use_bidirectional_attention|chunk_size|attn_config|block_size|num_mem_blocks|d_inner|mem_len|add_cross_attention"
    r"|num_experts_per_tok|ngram|kv_channels|prompt_length|attn_layers|num_hashes|lsh_attn_chunk_length|reuse_len|use_mems_eval|cross_num_key_value_heads|cross_head_dim|cross_attention_layers|lightning\w*"
    # fields for a forward's cost: widths of MLPs, experts and their layers, ranks, extra widths of single families
    r"|(dense_|prefix_dense_|moe_|expert_|shared_|shared_expert_|shared_experts_|moe_shared_expert_)?intermediate_size(_mlp)?"
    r"|(decoder_|moe_)?ffn_(dim|hidden_size|proj_factor|round_up_to_multiple_of)|expert_ffn_hidden_size|ffn_config"
    r"|n_inner|d_ff|d_inner|dff|dim_ff|feed_forward_size|expansion_ratio|intermediate_multiple_size|block_\w*ff\w*"
    r"|block_multiple_of|feed_forward_proj|is_gated_act|num_experts|num_local_experts|n_routed_experts|moe_num_experts"
    r"|moe_num_shared_experts|n_shared_experts|num_shared_experts|zero_expert_num|moe_topk|moe_k|top_k_experts"
    r"|first_k_dense_replace|num_dense_layers|mlp_only_layers|mlp_layer_types|decoder_sparse_step|moe_layers"
    r"|moe_layer_(start_index|end_index|interval|freq)|interleave_moe_layer_step|expert_layer_(period|offset)"
    r"|enable_moe_block|is_moe|moe_latent_size|q_lora_rank|word_embed_proj_dim|embedding_size|input_embedding_size"
    r"|laurel_rank|altup_num_inputs|hidden_size_per_layer_input|use_double_wide_mlp|adapter_rank|logits_to_keep"
    r"|use_shared_attention_adapter|use_mem_rank|router_hidden_size|gating|use_attention_gate|tie_word_embeddings"
    r"|pad_vocab_size_multiple|mamba_dt_rank|use_associative_scan|index_topk|use_qk_norm)$"
)
# Fields that some families' code never reads; for those families a value in the file has no effect.
MAYBE_IGNORED = ("head_dim", "num_key_value_heads", "v_head_dim", "kv_lora_rank", "multi_query")


def model_types() -> list[str]:
    """List all registered causal decoders and encoder-decoders, and the types of their parts."""
    tables = (
        auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
        auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
    )
    found = {name for table in tables for name in table if name in CONFIG_MAPPING}
    parts = {part for name in found for part in parts_of(CONFIG_MAPPING[name]).values()}
    return sorted(found | {part for part in parts if part in CONFIG_MAPPING})


TEXT_PARTS = ("text_config", "decoder", "decoder_config", "text_encoder", "language_config", "llm_config")


def parts_of(config_class: type) -> dict[str, str]:
    """Return the sub-configs of a composite config that hold a decoder, with their default types."""
    parts = {}
    for name, part in (getattr(config_class, "sub_configs", None) or {}).items():
        if name in TEXT_PARTS:
            parts[name] = getattr(part, "model_type", "") or ""
    return parts


def defaults_of(config_class: type) -> dict[str, Any]:
    """Return the class's defaults of the wanted fields, as far as JSON can hold them."""
    found = {}
    for field in dataclasses.fields(config_class):
        value = field.default
        if value is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        if WANTED.match(field.name) and isinstance(value, int | float | str | list | tuple | dict | type(None)):
            found[field.name] = value
    return found


def source_of(config_class: type) -> str:
    """Return the source code of a family: the modules of its config and of its model."""
    code = inspect.getsource(inspect.getmodule(config_class))
    try:
        module = importlib.import_module(config_class.__module__.replace(".configuration_", ".modeling_"))
        return code + inspect.getsource(module)
    except (ImportError, OSError):
        return ""


def ignored_by(code: str, known: Container[str], names: tuple[str, ...] = MAYBE_IGNORED) -> list[str]:
    """List the fields that the config class does not declare and the model's code never reads from a config."""
    if not code:
        return []
    code = re.sub(
        r"def compute_default_rope_parameters.*?return inv_freq", "", code, flags=re.DOTALL
    )  # irrelevant for the cache
    asked = (name for name in names if re.search(rf"onfig\.{name}\b|['\"]{name}['\"]", code))
    return sorted(set(names) - set(asked) - {name for name in names if name in known})


def encodes(defaults: dict[str, Any], code: str) -> bool:
    """Whether the family is an encoder unless its config sets `is_decoder`."""
    return (
        not defaults.get("is_encoder_decoder")
        and defaults.get("is_decoder") is False
        and "standalone, add `is_decoder=True" in code
    )


def family(model_type: str) -> dict[str, Any]:
    """Build a model type's row of the file."""
    config_class = CONFIG_MAPPING[model_type]
    aliases = {common: own for common, own in config_class.attribute_map.items() if WANTED.match(common)}
    code, defaults = source_of(config_class), defaults_of(config_class)
    if found := re.search(r'kwargs.setdefault\("partial_rotary_factor", ([0-9.]+)\)', code):
        defaults["partial_rotary_factor"] = float(found[1])
    row = {
        "defaults": defaults,
        "aliases": aliases,
        "ignores": ignored_by(code, {*defaults, *aliases}),
        "widths": sorted({*NAMES["widths"]} - {*ignored_by(code, {*defaults, *aliases}, NAMES["widths"])}),
        "encoder": encodes(defaults, code),
        "whole_head": bool(code) and "logits_to_keep" not in code,
    }
    row["parts"] = parts_of(config_class)
    return {key: value for key, value in row.items() if value}


def document() -> dict[str, Any]:
    """Build the content of the file."""
    version = transformers.__version__
    return {
        "note": "Defaults of the config classes, by model_type; made by `python -m tools.families`.",
        "source": f"https://github.com/huggingface/transformers/tree/v{version}/src/transformers/models",
        "transformers": version,
        "families": {name: family(name) for name in model_types()},
    }


def written(data: dict[str, Any]) -> str:
    """Format the file with one family per line."""
    head = {key: value for key, value in data.items() if key != "families"}
    rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in data["families"].items())
    return json.dumps(head)[:-1] + ', "families": {\n' + rows + "\n}}\n"


if __name__ == "__main__":
    (HERE / "families.json").write_text(written(document()), encoding="utf-8")
