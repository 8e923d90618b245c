"""The blocks that mix tokens in a decoder layer: attention or a recurrence."""

from collections.abc import Callable

from kvviz.base.errors import ConfigError
from kvviz.cost import blocks
from kvviz.cost.blocks import Attention, Block, Convolution, Matrix, Scan, matrices
from kvviz.cost.family_costs import FAMILY_COSTS
from kvviz.models.config_fields import NAMES, Fields
from kvviz.models.heads import read_heads
from kvviz.models.layers import LayerSpec
from kvviz.models.states import read_states

DELTA_CHUNK = 64  # tokens that transformers' gated delta rule processes at once

States = dict[str, tuple[int, ...]]  # name and shape of each state of a layer, as the cache keeps it


def read_attention(fields: Fields, layer: LayerSpec, hidden: int, *, shared: LayerSpec | None = None) -> list[Block]:
    """Return the blocks of an attention layer; `shared` is the layer whose keys and values it reads."""
    if layer.latent:
        return _latent(fields, layer, hidden)
    heads, kept = read_heads(fields), shared or layer
    key, value = kept.key_dim, kept.value_dim
    queries = heads * key * (2 if fields.model_type in FAMILY_COSTS["gated_queries"] else 1)
    made = [] if shared else [(hidden, layer.kv_heads * dim) for dim in (key, value)]
    return [
        *matrices("projections", (hidden, queries), *made, (heads * value, hidden)),
        *_head_gate(fields, hidden),
        Attention(heads, key, value, kept.as_stored.window),  # a layer stored whole masks its window
    ]


def _head_gate(fields: Fields, hidden: int) -> list[Block]:
    gated = fields.model_type in FAMILY_COSTS["gated_heads"]
    return matrices("projections", (hidden, read_heads(fields))) if gated else []


def _latent(fields: Fields, layer: LayerSpec, hidden: int) -> list[Block]:
    """Return the blocks of latent attention in transformers, which expands the whole context's latents in each step.

    https://arxiv.org/abs/2405.04434 shows how to fold the expansion into the queries instead.
    """
    heads, rank, rotary = read_heads(fields), layer.key_dim, layer.value_dim
    plain, value = fields.size("qk_nope_head_dim"), fields.size("v_head_dim")
    low, queries = fields.optional("q_lora_rank"), heads * (plain + rotary)
    widths = [(hidden, low), (low, queries)] if low else [(hidden, queries)]
    return [
        *matrices("projections", *widths, (hidden, rank + rotary), (heads * value, hidden)),
        Matrix("projections", rank, heads * (plain + value), over="seen", window=layer.window),
        Attention(heads, plain + rotary, value, layer.window),
        *_head_gate(fields, hidden),
        *(_indexer(fields, layer, hidden, low) if layer.index_dim else []),
    ]


def _indexer(fields: Fields, layer: LayerSpec, hidden: int, low: int | None) -> list[Block]:
    """Return the blocks of an indexer, which scores every token: heads of `index_dim`, their weights, one key."""
    heads, dim = fields.size("index_n_heads"), layer.index_dim
    return [
        *matrices("indexer", (low or hidden, heads * dim), (hidden, dim), (hidden, heads)),
        Attention(heads, dim, 1, term="indexer"),  # scores, and their sum over the heads
    ]


def read_linear(fields: Fields, kind: str, hidden: int) -> list[Block]:
    """Return the blocks of a recurrent or convolving layer. Raises ConfigError if the family is not in _LINEAR."""
    for families, read in _LINEAR:
        if fields.model_type in families:
            return read(fields, {state.name: state.shape for state in read_states(fields, kind)}, hidden)
    raise ConfigError(
        f"can't count the {kind} layers of {fields.model_type} because the cost of their recurrence is not known here"
    )


def _conv(states: States) -> Convolution:
    channels, columns = states["convolution"]
    return Convolution(channels, columns)


def _mamba(fields: Fields, states: States, hidden: int) -> list[Block]:
    """Mamba: https://arxiv.org/abs/2312.00752."""
    inner, state = states["recurrent"]
    rank = fields.raw("mamba_dt_rank") if fields.has("mamba_dt_rank") else fields.raw("time_step_rank")
    rank = rank if isinstance(rank, int) else -(-hidden // 16)
    return [
        *matrices("projections", (hidden, 2 * inner), (inner, rank + 2 * state), (rank, inner), (inner, hidden)),
        _conv(states),
        Scan(blocks.selective, 1, inner, state),
    ]


def _mamba2(fields: Fields, states: States, hidden: int) -> list[Block]:
    """Mamba-2: https://arxiv.org/abs/2405.21060."""
    conv, (inner, state), heads = _conv(states), states["recurrent"], fields.first(*NAMES["state_heads"])
    if not heads or inner % heads:
        raise ConfigError(f"can't count the Mamba-2 layers because their heads ({heads}) do not divide {inner}")
    chunk = fields.first("mamba_chunk_size", "chunk_size") or 256
    return [
        *matrices("projections", (hidden, inner + conv.channels + heads), (inner, hidden)),
        conv,
        Scan(blocks.state_space_dual, heads, state, inner // heads, chunk),
    ]


def _gated_delta(fields: Fields, states: States, hidden: int) -> list[Block]:
    """Gated DeltaNet: https://arxiv.org/abs/2412.06464."""
    conv, (heads, key, value) = _conv(states), states["recurrent"]
    wide = heads * value
    return [
        *matrices("projections", (hidden, conv.channels + wide), (hidden, 2 * heads), (wide, hidden)),
        conv,
        Scan(blocks.gated_delta, heads, key, value, DELTA_CHUNK),
    ]


def _kimi(fields: Fields, states: States, hidden: int) -> list[Block]:
    """Kimi delta attention: https://arxiv.org/abs/2510.26692."""
    conv, (heads, key, value) = _conv(states), states["recurrent"]
    wide = heads * value
    full = fields.model_type in FAMILY_COSTS["full_delta_gates"]
    gate = [(hidden, wide)] if full else [(hidden, value), (value, wide)]
    return [
        *matrices("projections", (hidden, conv.channels), (hidden, heads), *gate, *gate, (wide, hidden)),
        conv,
        Scan(blocks.gated_delta, heads, key, value, DELTA_CHUNK),
    ]


def _lightning(fields: Fields, states: States, hidden: int) -> list[Block]:
    """Lightning attention: https://arxiv.org/abs/2501.08313."""
    heads, key, value = states["recurrent"]
    wide = heads * value
    return [
        *matrices("projections", (hidden, 3 * wide), (hidden, wide), (wide, hidden)),
        Scan(blocks.lightning, heads, key, value, fields.size("block_size")),
    ]


def _recurrent_gemma(fields: Fields, states: States, hidden: int) -> list[Block]:
    """RecurrentGemma: gated linear recurrent units with two block-diagonal gates: https://arxiv.org/abs/2402.19427."""
    (width, columns), heads = states["convolution"], read_heads(fields)
    block = width // heads
    return [
        *matrices("projections", (hidden, width), (hidden, width), (width, hidden)),
        Convolution(width, columns + 1, stepped=False),
        *[Matrix("projections", block, block, heads, heads)] * 2,
    ]


def _receptance(fields: Fields, states: States, hidden: int) -> list[Block]:
    """RWKV-4: four matrices, and running sums, which are elementwise: https://arxiv.org/abs/2305.13048."""
    width = fields.optional("attention_hidden_size") or hidden
    return matrices("projections", *[(hidden, width)] * 3, (width, hidden))


def _short_conv(fields: Fields, states: States, hidden: int) -> list[Block]:
    """LFM2: a gated short convolution: https://arxiv.org/abs/2511.23404."""
    return [*matrices("projections", (hidden, 3 * hidden), (hidden, hidden)), _conv(states)]


_LINEAR: tuple[tuple[tuple[str, ...], Callable[[Fields, States, int], list[Block]]], ...] = (
    (("mamba", "falcon_mamba", "jamba"), _mamba),
    (("mamba2", "bamba", "granitemoehybrid", "falcon_h1", "nemotron_h", "zamba2"), _mamba2),
    (("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid"), _gated_delta),
    (("kimi_linear", "bailing_hybrid"), _kimi),
    (("minimax",), _lightning),
    (("recurrent_gemma",), _recurrent_gemma),
    (("lfm2", "lfm2_moe", "lfm3"), _short_conv),
    (("rwkv",), _receptance),
)
