"""The MLP of each layer of a decoder, dense or of experts, from a config's fields. Standard library only.

Gated MLPs have three matrices (gate, up, down), plain ones two. Which layers have experts, how many a token passes and
how wide they are stand in fields; the rules stand in the modeling_*.py of
https://github.com/huggingface/transformers/tree/main/src/transformers/models.
"""

from kvviz.base.errors import ConfigError
from kvviz.cost.blocks import Block, Matrix
from kvviz.models.config_fields import Fields, checked

# Families whose MLP has two matrices and no gate.
PLAIN = frozenset(
    (
        *("apertus", "arcee", "bart", "bert", "bert-generation", "big_bird", "bigbird_pegasus", "biogpt"),
        *("blenderbot", "blenderbot-small", "bloom", "camembert", "canary", "codegen", "cohere_asr", "ctrl"),
        *("data2vec-text", "electra", "ernie", "falcon", "fsmt", "git", "gpt-sw3", "gpt2", "gpt_bigcode"),
        *("gpt_neo", "gpt_neox", "gpt_neox_japanese", "gptj", "jais2", "led", "m2m_100", "marian", "mbart"),
        *("megatron-bert", "mpt", "mvp", "nanochat", "nemotron", "nemotron_h", "opt", "pegasus", "pegasus_x"),
        *("persimmon", "phi", "plbart", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer"),
        *("seamless_m4t", "seamless_m4t_v2", "speech_to_text", "speecht5", "starcoder2", "trocr", "whisper"),
        *("xglm", "xlm-roberta", "xlm-roberta-xl", "xmod"),
    )
)
_WIDTHS = (
    "decoder_ffn_dim",
    "ffn_dim",
    "n_inner",
    "d_ff",
    "ffn_hidden_size",
    "dff",
    "dim_ff",
    "intermediate_size",
)
EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
_CHOSEN = ("num_experts_per_tok", "moe_k", "moe_topk", "top_k_experts")
# Families whose code passes every token through all experts and weighs what comes out.
_ALL_EXPERTS = ("llama4_text",)


def first(fields: Fields, *names: str, least: int = 1) -> int | None:
    """The first of these fields that is there."""
    return next((fields.size(name, least) for name in names if fields.has(name)), None)


def read_mlp(fields: Fields, index: int, hidden: int) -> list[Block]:
    """The matrices of one layer's MLP. Raises ConfigError naming what can't be counted."""
    own = _OWN.get(fields.model_type)
    if own is not None:
        return own(fields, index, hidden)
    if has_experts(fields, index):
        return _experts(fields, hidden) + _shared(fields, hidden)
    return dense(fields, hidden, dense_width(fields, index, hidden))


def dense(fields: Fields, hidden: int, width: int, term: str = "mlp") -> list[Block]:
    """Up (and gate) and down: hidden x width each."""
    up = 1 if is_plain(fields) else 2
    return [Matrix(term, hidden, width)] * up + [Matrix(term, width, hidden)]


def is_plain(fields: Fields) -> bool:
    """Whether an MLP has no gate."""
    if fields.has("feed_forward_proj"):
        return not str(fields.raw("feed_forward_proj")).startswith("gated")
    return fields.model_type in PLAIN


def dense_width(fields: Fields, index: int, hidden: int) -> int:
    """Inner width of a dense MLP; four times the hidden size where the family leaves it so."""
    if fields.model_type == "bloom":
        return 4 * hidden
    if fields.model_type == "mpt":
        return int(fields.number("expansion_ratio") * hidden) if fields.has("expansion_ratio") else 4 * hidden
    for name in ("intermediate_size_mlp", "dense_intermediate_size"):
        if fields.has(name):
            return fields.size(name)
    if isinstance(fields.raw("intermediate_size"), list | tuple):
        widths = fields.indices("intermediate_size", least=1) or []
        if index >= len(widths):
            raise ConfigError(f"can't count layer {index}'s MLP because intermediate_size has {len(widths)} entries")
        return widths[index]
    return first(fields, *_WIDTHS) or 4 * hidden


def has_experts(fields: Fields, index: int) -> bool:
    """Whether a layer's MLP consists of experts."""
    if first(fields, *EXPERTS, least=0) in (None, 0):
        return False
    if fields.raw("is_moe") is False or fields.raw("enable_moe_block") is False:
        return False
    types = fields.names("mlp_layer_types")
    if types is not None:
        return index < len(types) and types[index] not in ("dense", "mlp")
    if fields.has("moe_layers"):
        return index in (fields.indices("moe_layers") or [])
    if fields.has("interleave_moe_layer_step"):
        return (index + 1) % fields.size("interleave_moe_layer_step") == 0
    if fields.has("expert_layer_period"):
        return index % fields.size("expert_layer_period") == fields.size("expert_layer_offset", 0)
    if fields.has("moe_layer_start_index"):
        last = fields.optional("moe_layer_end_index", least=-1)
        inside = fields.size("moe_layer_start_index", 0) <= index and (last in (None, -1) or index <= last)
        return inside and (index + 1) % (fields.optional("moe_layer_interval") or 1) == 0
    if index < (first(fields, "first_k_dense_replace", "num_dense_layers", least=0) or 0):
        return False
    if fields.has("moe_layer_freq") and not isinstance(fields.raw("moe_layer_freq"), list | tuple):
        return index % fields.size("moe_layer_freq") == 0
    if index in (fields.indices("mlp_only_layers") or []):
        return False
    return (index + 1) % (fields.optional("decoder_sparse_step") or 1) == 0


def expert_width(fields: Fields, hidden: int) -> int:
    """Inner width of one expert."""
    return first(fields, "moe_intermediate_size", "expert_ffn_hidden_size", *_WIDTHS) or 4 * hidden


def chosen(fields: Fields, experts: int) -> int:
    """Experts that each token passes."""
    if fields.model_type in _ALL_EXPERTS:
        return experts
    count = first(fields, *_CHOSEN)
    if count is None:
        raise ConfigError("can't count the experts because the config has no num_experts_per_tok")
    return checked("num_experts_per_tok", min(count, experts))


def _experts(fields: Fields, hidden: int, *, gated: bool = True) -> list[Block]:
    experts = first(fields, *EXPERTS) or 1
    width, used = expert_width(fields, hidden), chosen(fields, experts)
    up = 2 if gated else 1
    return [
        Matrix("router", hidden, experts),
        Matrix("mlp", hidden, up * width, experts, used),
        Matrix("mlp", width, hidden, experts, used),
    ]


def _shared(fields: Fields, hidden: int) -> list[Block]:
    """The MLP that every token passes beside the experts."""
    name = fields.model_type
    if name in ("qwen2_moe", "qwen3_next", "qwen3_5_moe_text", "flint", "kolibri1", "laguna"):
        width = first(fields, "shared_expert_intermediate_size")
        gate = [] if name in ("flint", "kolibri1", "laguna") else [Matrix("router", hidden, 1)]
        return dense(fields, hidden, width) + gate if width else []
    if name in ("granitemoeshared", "granitemoehybrid", "granitemoe_swa"):
        width = first(fields, "shared_intermediate_size", least=0)
        return dense(fields, hidden, width) if width else []
    if name == "llama4_text":
        return dense(fields, hidden, fields.size("intermediate_size"))
    if name == "hunyuan_v1_moe":
        return dense(fields, hidden, fields.size("intermediate_size"))
    count = first(fields, "n_shared_experts", "num_shared_experts", "moe_num_shared_experts", least=0)
    return dense(fields, hidden, count * expert_width(fields, hidden)) if count else []


def _lfm2(fields: Fields, index: int, hidden: int) -> list[Block]:
    """LFM2 narrows its inner width by two thirds, and rounds it up."""
    width = first(fields, "block_ff_dim", "intermediate_size") or 4 * hidden
    if fields.raw("block_auto_adjust_ff_dim") is not False:
        factor = fields.number("block_ffn_dim_multiplier") if fields.has("block_ffn_dim_multiplier") else 1
        step = fields.optional("block_multiple_of") or 256
        width = step * ((int(factor * int(2 * width / 3)) + step - 1) // step)
    return dense(fields, hidden, width)


def _granite_hybrid(fields: Fields, index: int, hidden: int) -> list[Block]:
    experts = first(fields, "num_local_experts", least=0) or 0
    return (_experts(fields, hidden) if experts else []) + _shared(fields, hidden)


def _none(fields: Fields, index: int, hidden: int) -> list[Block]:
    return []


def _receptance(fields: Fields, index: int, hidden: int) -> list[Block]:
    """RWKV-4: key, value, and a gate as wide as the hidden size."""
    width = fields.optional("intermediate_size") or 4 * hidden
    return [Matrix("mlp", hidden, width), Matrix("mlp", width, hidden), Matrix("mlp", hidden, hidden)]


_OWN = {
    "falcon_mamba": _none,
    "granitemoehybrid": _granite_hybrid,
    "lfm2": _lfm2,
    "mamba": _none,
    "mamba2": _none,
    "rwkv": _receptance,
    "recurrent_gemma": lambda fields, index, hidden: dense(fields, hidden, fields.size("intermediate_size") // 2),
}


def read_nemotron(fields: Fields, hidden: int, *, experts: bool) -> list[Block]:
    """Nemotron-H: a layer is an MLP or experts alone; no gate in either."""
    if not experts:
        return dense(fields, hidden, fields.size("intermediate_size"))
    inner = fields.optional("moe_latent_size") or hidden
    count = fields.size("n_routed_experts")
    width, used = fields.size("moe_intermediate_size"), chosen(fields, count)
    latent = [Matrix("mlp", hidden, inner), Matrix("mlp", inner, hidden)] if inner != hidden else []
    shared = fields.size("moe_shared_expert_intermediate_size") * (fields.optional("n_shared_experts", 0) or 1)
    return [
        Matrix("router", hidden, count),
        Matrix("mlp", inner, width, count, used),
        Matrix("mlp", width, inner, count, used),
        *latent,
        *dense(fields, hidden, shared),
    ]
