"""What mixes the tokens of each layer of a decoder: attention or a recurrence, as blocks. Standard library only.

Widths follow from fields as in `layers.py`; where transformers' code does more than the widths say (a gate as wide as
the queries, keys expanded again from a latent), a row below says so.
"""

from collections.abc import Sequence

from kvviz.base.errors import ConfigError
from kvviz.cost.blocks import Attention, Block, Convolution, Matrix, Scan
from kvviz.cost.mlps import first
from kvviz.models.config_fields import Fields
from kvviz.models.heads import read_heads
from kvviz.models.layers import LayerSpec
from kvviz.models.states import read_states

# Families whose queries come with a gate as wide as themselves.
_GATED = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "afmoe", "beam")
DELTA_CHUNK = 64  # tokens that transformers' gated delta rule takes at once


def read_attention(fields: Fields, layer: LayerSpec, hidden: int, *, shared: LayerSpec | None = None) -> list[Block]:
    """Projections and products of an attention layer; `shared`: the layer whose keys and values it reads."""
    if layer.latent:
        return _latent(fields, layer, hidden)
    heads, kept = read_heads(fields), shared or layer
    key, value = kept.key_dim, kept.value_dim
    queries = heads * key * (2 if fields.model_type in _GATED else 1)
    made = [] if shared else [Matrix("projections", hidden, layer.kv_heads * dim) for dim in (key, value)]
    gate = _GATES.get(fields.model_type)
    return [
        Matrix("projections", hidden, queries),
        *made,
        *([Matrix("projections", *gate(fields, layer, hidden))] if gate else []),
        Matrix("projections", heads * value, hidden),
        Attention(heads, key, value, kept.as_stored.window),  # a family that keeps all masks all: gpt_neo
    ]


# Further gates on what attention gives: (inputs, outputs).
_GATES = {
    "laguna": lambda fields, layer, hidden: (hidden, read_heads(fields)),
    "lfm3": lambda fields, layer, hidden: (hidden, read_heads(fields)),
    "bailing_hybrid": lambda fields, layer, hidden: (hidden, read_heads(fields)),
    "dots3_note_text": lambda fields, layer, hidden: (hidden, read_heads(fields)),
}


def _latent(fields: Fields, layer: LayerSpec, hidden: int) -> list[Block]:
    """Latent attention. Keys and values are expanded again from the whole context's latents, as transformers does

    at every step; https://arxiv.org/abs/2405.04434 shows how the expansion can be folded into the queries instead.
    """
    heads, rank, rotary = read_heads(fields), layer.key_dim, layer.value_dim
    plain, value = fields.size("qk_nope_head_dim"), fields.size("v_head_dim")
    queries = heads * (plain + rotary)
    low = fields.optional("q_lora_rank")
    asked = [Matrix("projections", hidden, low), Matrix("projections", low, queries)] if low else None
    blocks: list[Block] = [
        *(asked or [Matrix("projections", hidden, queries)]),
        Matrix("projections", hidden, rank + rotary),
        Matrix("projections", rank, heads * (plain + value), over="seen", window=layer.window),
        Matrix("projections", heads * value, hidden),
        Attention(heads, plain + rotary, value, layer.window),
    ]
    gate = _GATES.get(fields.model_type)
    blocks += [Matrix("projections", *gate(fields, layer, hidden))] if gate else []
    return blocks + (_indexer(fields, layer, hidden, low) if layer.index_dim else [])


def _indexer(fields: Fields, layer: LayerSpec, hidden: int, low: int | None) -> list[Block]:
    """An indexer scores every token of the context: heads of `index_dim`, their weights, one key."""
    heads, dim = fields.size("index_n_heads"), layer.index_dim
    return [
        Matrix("indexer", low or hidden, heads * dim),
        Matrix("indexer", hidden, dim),
        Matrix("indexer", hidden, heads),
        Attention(heads, dim, 1, term="indexer"),  # scores, and their sum over the heads
    ]


def read_linear(fields: Fields, kind: str, hidden: int) -> list[Block]:
    """A recurrent or convolving layer. Raises ConfigError for a recurrence whose cost is not written down here."""
    for names, read in _LINEAR:
        if fields.model_type in names:
            return read(fields, kind, hidden)
    raise ConfigError(
        f"can't count the {kind} layers of {fields.model_type} because the cost of their recurrence is not known here"
    )


def _kept(fields: Fields, kind: str) -> tuple[int, int]:
    """Channels and kept columns of a layer's convolution."""
    channels, columns = next(state.shape for state in read_states(fields, kind) if state.name == "convolution")
    return channels, columns


def _conv(fields: Fields, kind: str) -> Convolution:
    channels, columns = _kept(fields, kind)
    return Convolution(channels, columns, columns)


def _mamba(fields: Fields, kind: str, hidden: int) -> list[Block]:
    """Mamba: https://arxiv.org/abs/2312.00752."""
    conv = _conv(fields, kind)
    inner, state = next(s.shape for s in read_states(fields, kind) if s.name == "recurrent")
    rank = fields.raw("mamba_dt_rank") if fields.has("mamba_dt_rank") else fields.raw("time_step_rank")
    rank = rank if isinstance(rank, int) else -(-hidden // 16)
    return [
        Matrix("projections", hidden, 2 * inner),
        conv,
        Matrix("projections", inner, rank + 2 * state),
        Matrix("projections", rank, inner),
        Scan("selective", 1, inner, state),
        Matrix("projections", inner, hidden),
    ]


def _mamba2(fields: Fields, kind: str, hidden: int) -> list[Block]:
    """Mamba-2: https://arxiv.org/abs/2405.21060."""
    conv = _conv(fields, kind)
    inner, state = next(s.shape for s in read_states(fields, kind) if s.name == "recurrent")
    heads = first(fields, "mamba_n_heads", "n_mamba_heads", "mamba_num_heads", "num_heads")
    if not heads or inner % heads:
        raise ConfigError(f"can't count the {kind} layers because their heads ({heads}) do not divide {inner}")
    chunk = first(fields, "mamba_chunk_size", "chunk_size") or 256
    return [
        Matrix("projections", hidden, inner + conv.channels + heads),
        conv,
        Scan("state space dual", heads, state, inner // heads, chunk),
        Matrix("projections", inner, hidden),
    ]


def _gated_delta(fields: Fields, kind: str, hidden: int) -> list[Block]:
    """Gated DeltaNet: https://arxiv.org/abs/2412.06464."""
    conv = _conv(fields, kind)
    heads, key, value = next(s.shape for s in read_states(fields, kind) if s.name == "recurrent")
    return [
        Matrix("projections", hidden, conv.channels + heads * value),
        Matrix("projections", hidden, 2 * heads),
        conv,
        Scan("gated delta", heads, key, value, DELTA_CHUNK),
        Matrix("projections", heads * value, hidden),
    ]


def _kimi(fields: Fields, kind: str, hidden: int) -> list[Block]:
    """Kimi delta attention: https://arxiv.org/abs/2510.26692."""
    conv = _conv(fields, kind)
    heads, key, value = next(s.shape for s in read_states(fields, kind) if s.name == "recurrent")
    wide = heads * value
    gates = [Matrix("projections", hidden, value), Matrix("projections", value, wide)] * 2
    if fields.model_type == "bailing_hybrid":
        gates = [Matrix("projections", hidden, wide)] * 2
    return [
        Matrix("projections", hidden, conv.channels),
        Matrix("projections", hidden, heads),
        *gates,
        conv,
        Scan("gated delta", heads, key, value, DELTA_CHUNK),
        Matrix("projections", wide, hidden),
    ]


def _lightning(fields: Fields, kind: str, hidden: int) -> list[Block]:
    """Lightning attention: https://arxiv.org/abs/2501.08313."""
    heads, key, value = next(s.shape for s in read_states(fields, kind))
    wide = heads * value
    return [
        Matrix("projections", hidden, 3 * wide),
        Matrix("projections", hidden, wide),
        Scan("lightning", heads, key, value, fields.size("block_size")),
        Matrix("projections", wide, hidden),
    ]


def _recurrent_gemma(fields: Fields, kind: str, hidden: int) -> list[Block]:
    """Real-gated linear recurrent units, whose two gates are block-diagonal: https://arxiv.org/abs/2402.19427."""
    width, columns = _kept(fields, kind)
    heads = read_heads(fields)
    block = width // heads
    return [
        *[Matrix("projections", hidden, width)] * 2,
        Convolution(width, columns + 1, columns, stepped=False),
        *[Matrix("projections", block, block, heads, heads)] * 2,
        Matrix("projections", width, hidden),
    ]


def _receptance(fields: Fields, kind: str, hidden: int) -> list[Block]:
    """RWKV-4: four matrices; its running sums are elementwise. https://arxiv.org/abs/2305.13048"""
    width = fields.optional("attention_hidden_size") or hidden
    return [*[Matrix("projections", hidden, width)] * 3, Matrix("projections", width, hidden)]


def _short_conv(fields: Fields, kind: str, hidden: int) -> list[Block]:
    """A gated short convolution: https://arxiv.org/abs/2511.23404."""
    return [Matrix("projections", hidden, 3 * hidden), _conv(fields, kind), Matrix("projections", hidden, hidden)]


_LINEAR: Sequence = (
    (("mamba", "falcon_mamba", "jamba"), _mamba),
    (("mamba2", "bamba", "granitemoehybrid", "falcon_h1", "nemotron_h", "zamba2"), _mamba2),
    (("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid"), _gated_delta),
    (("kimi_linear", "bailing_hybrid"), _kimi),
    (("minimax",), _lightning),
    (("recurrent_gemma",), _recurrent_gemma),
    (("lfm2", "lfm2_moe", "lfm3"), _short_conv),
    (("rwkv",), _receptance),
)
