"""The MLP of each decoder layer, dense or of experts, read from a config's fields.

A gated MLP has three matrices (gate, up, down), a plain one has two.
"""

from collections.abc import Callable, Mapping

from kvviz.base.errors import ConfigError
from kvviz.cost.blocks import Block, Matrix, matrices
from kvviz.cost.family_costs import FAMILY_COSTS
from kvviz.models.config_fields import NAMES, Fields, checked


def read_mlp(fields: Fields, index: int, hidden: int) -> list[Block]:
    """Return the matrices of one layer's MLP. Raises ConfigError naming what can't be counted."""
    if fields.model_type in FAMILY_COSTS["no_mlp"]:
        return []
    if own := _OWN.get(fields.model_type):
        return own(fields, hidden)
    if has_experts(fields, index):
        return _experts(fields, hidden) + _shared(fields, hidden)
    return dense(fields, hidden, dense_width(fields, index, hidden))


def dense(fields: Fields, hidden: int, width: int) -> list[Block]:
    """Return the matrices up (and gate) and down, each hidden x width."""
    return matrices("mlp", *[(hidden, width)] * (2 if is_gated(fields) else 1), (width, hidden))


def is_gated(fields: Fields) -> bool:
    """Whether an MLP has a gate."""
    if fields.has("feed_forward_proj"):
        return str(fields.raw("feed_forward_proj")).startswith("gated")
    return fields.model_type not in FAMILY_COSTS["ungated_mlp"]


def dense_width(fields: Fields, index: int, hidden: int) -> int:
    """Inner width of a dense MLP: four times the hidden size unless the config or the family says otherwise."""
    factor = FAMILY_COSTS["mlp_factor"].get(fields.model_type)
    if factor is not None:
        stated = isinstance(factor, str) and fields.has(factor)
        return int(fields.number(str(factor)) * hidden) if stated else 4 * hidden
    if (stated_width := fields.first("intermediate_size_mlp", "dense_intermediate_size")) is not None:
        return stated_width
    if isinstance(fields.raw("intermediate_size"), list | tuple):
        widths = fields.indices("intermediate_size", least=1) or []
        if index >= len(widths):
            raise ConfigError(f"can't count layer {index}'s MLP because intermediate_size has {len(widths)} entries")
        return widths[index]
    return fields.first(*NAMES["mlp_width"]) or 4 * hidden


def has_experts(fields: Fields, index: int) -> bool:
    """Whether a layer's MLP consists of experts; the first of the fields below that is present decides."""
    if fields.first(*NAMES["experts"], least=0) in (None, 0):
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
    if index < (fields.first("first_k_dense_replace", "num_dense_layers", least=0) or 0):
        return False
    if fields.has("moe_layer_freq") and not isinstance(fields.raw("moe_layer_freq"), list | tuple):
        return index % fields.size("moe_layer_freq") == 0
    if index in (fields.indices("mlp_only_layers") or []):
        return False
    return (index + 1) % (fields.optional("decoder_sparse_step") or 1) == 0


def expert_width(fields: Fields, hidden: int) -> int:
    """Inner width of one expert."""
    return fields.first("moe_intermediate_size", "expert_ffn_hidden_size", *NAMES["mlp_width"]) or 4 * hidden


def chosen(fields: Fields, experts: int) -> int:
    """Number of experts that each token uses."""
    if fields.model_type in FAMILY_COSTS["computes_all_experts"]:
        return experts
    count = fields.first(*NAMES["experts_per_token"])
    if count is None:
        raise ConfigError("can't count the experts because the config has no num_experts_per_tok")
    return checked("num_experts_per_tok", min(count, experts))


def _experts(fields: Fields, hidden: int) -> list[Block]:
    experts = fields.first(*NAMES["experts"]) or 1
    width, used = expert_width(fields, hidden), chosen(fields, experts)
    return [
        Matrix("router", hidden, experts),
        Matrix("mlp", hidden, 2 * width, experts, used),
        Matrix("mlp", width, hidden, experts, used),
    ]


def _shared(fields: Fields, hidden: int) -> list[Block]:
    """Return the MLP that every token uses beside the experts."""
    field = FAMILY_COSTS["shared_expert_width"].get(fields.model_type)
    if field is None:
        count = fields.first(*NAMES["shared_experts"], least=0)
        width = count * expert_width(fields, hidden) if count else 0
    else:
        width = fields.optional(field, least=0) or 0
    gate = matrices("router", (hidden, 1)) if fields.model_type in FAMILY_COSTS["shared_expert_gated"] else []
    return [*dense(fields, hidden, width), *gate] if width else []


def _lfm2(fields: Fields, hidden: int) -> list[Block]:
    """LFM2: the inner width is cut by a third and rounded up."""
    width = fields.first("block_ff_dim", "intermediate_size") or 4 * hidden
    if fields.raw("block_auto_adjust_ff_dim") is not False:
        factor = fields.number("block_ffn_dim_multiplier") if fields.has("block_ffn_dim_multiplier") else 1
        step = fields.optional("block_multiple_of") or 256
        width = step * ((int(factor * int(2 * width / 3)) + step - 1) // step)
    return dense(fields, hidden, width)


def _granite_hybrid(fields: Fields, hidden: int) -> list[Block]:
    experts = fields.first("num_local_experts", least=0) or 0
    return (_experts(fields, hidden) if experts else []) + _shared(fields, hidden)


def _receptance(fields: Fields, hidden: int) -> list[Block]:
    """RWKV-4: key, value, and a gate as wide as the hidden size."""
    width = fields.optional("intermediate_size") or 4 * hidden
    return matrices("mlp", (hidden, width), (width, hidden), (hidden, hidden))


def _recurrent_gemma(fields: Fields, hidden: int) -> list[Block]:
    return dense(fields, hidden, fields.size("intermediate_size") // 2)


# Families that build their MLP by a rule of their own.
_OWN: Mapping[str, Callable[[Fields, int], list[Block]]] = {
    "granitemoehybrid": _granite_hybrid,
    "lfm2": _lfm2,
    "rwkv": _receptance,
    "recurrent_gemma": _recurrent_gemma,
}


def read_nemotron(fields: Fields, hidden: int, *, experts: bool) -> list[Block]:
    """Nemotron-H: a layer is only an MLP or only experts; neither has a gate."""
    if not experts:
        return dense(fields, hidden, fields.size("intermediate_size"))
    inner = fields.optional("moe_latent_size") or hidden
    count = fields.size("n_routed_experts")
    width, used = fields.size("moe_intermediate_size"), chosen(fields, count)
    latent = matrices("mlp", (hidden, inner), (inner, hidden)) if inner != hidden else []
    shared = fields.size("moe_shared_expert_intermediate_size") * (fields.optional("n_shared_experts", 0) or 1)
    return [
        Matrix("router", hidden, count),
        Matrix("mlp", inner, width, count, used),
        Matrix("mlp", width, inner, count, used),
        *latent,
        *dense(fields, hidden, shared),
    ]
