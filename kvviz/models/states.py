"""What a recurrent or convolving layer keeps in addition to keys and values, independent of the text's length."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kvviz.base.errors import ConfigError
from kvviz.models.config_fields import NAMES, Fields
from kvviz.models.heads import read_heads, read_key_dim, read_kv_heads


@dataclass(frozen=True)
class State:
    """A tensor of constant size; `shape` excludes the batch. `float32`: it is float32 whatever the model's dtype.

    `integer`: it holds whole numbers of 8 bytes, such as the ids of the last tokens.
    """

    name: str
    shape: tuple[int, ...]
    float32: bool = False
    integer: bool = False

    def element_bytes(self, usual: int) -> int:
        """Bytes of one element, where one of the cache's dtype has `usual` bytes."""
        return 8 if self.integer else 4 if self.float32 else usual

    @property
    def elements(self) -> int:
        """Elements for one sequence."""
        return math.prod(self.shape)


States = tuple[State, ...]


def read_states(fields: Fields, layer_type: str) -> States:
    """Return the states that one layer keeps for one sequence. Raises ConfigError for a config without their sizes."""
    for present, read in BY_FIELDS:
        if all(fields.has(name) for name in present):
            return read(fields)
    own = BY_FAMILY.get(fields.model_type)
    if own is None:
        raise ConfigError(f"layers are of type {layer_type}, and the config has no size of a state that kvviz reads")
    return own(fields)


def _gated_delta(fields: Fields) -> States:
    """Gated DeltaNet: https://arxiv.org/abs/2412.06464."""
    key, value = fields.size("linear_key_head_dim"), fields.size("linear_value_head_dim")
    key_heads, value_heads = fields.size("linear_num_key_heads"), fields.size("linear_num_value_heads")
    rolling = 2 * key_heads * key + value_heads * value, fields.size("linear_conv_kernel_dim")
    return State("convolution", rolling), State("recurrent", (value_heads, key, value), float32=True)


def _kimi_delta(fields: Fields) -> States:
    """Kimi delta attention: https://arxiv.org/abs/2510.26692. A `linear_attn_config` in the file takes precedence."""
    nested = fields.raw("linear_attn_config")
    own = Fields(nested if isinstance(nested, Mapping) else {}, "")
    heads = own.optional("num_heads") or fields.size("linear_num_heads")
    dim = own.optional("head_dim") or fields.size("linear_head_dim")
    kernel = own.optional("short_conv_kernel_size") or fields.size("linear_conv_kernel_dim")
    return State("convolution", (3 * heads * dim, kernel)), State("recurrent", (heads, dim, dim), float32=True)


def read_ngram_states(fields: Fields, index: int) -> States:
    """Return what a layer with embeddings of n-grams (Qwen4) keeps: a dilated convolution, and the last tokens' ids."""
    if index + 1 not in (fields.indices("ple_layer_ids") or ()):  # counted from 1
        return ()
    order, streams = fields.size("ngram_size"), fields.size("hc_count") * fields.size("hidden_size")
    steps = (fields.size("ple_conv_kernel_size") - 1) * order
    return State("n-gram convolution", (streams, steps)), State("n-gram", (order - 1,), integer=True)


def _short_conv(fields: Fields) -> States:
    """LFM2: a short convolution over the hidden states: https://arxiv.org/abs/2511.23404."""
    return (State("convolution", (fields.size("hidden_size"), fields.size("conv_L_cache"))),)


def _mamba(fields: Fields) -> States:
    """Mamba (https://arxiv.org/abs/2312.00752); with groups it is Mamba-2 (https://arxiv.org/abs/2405.21060)."""
    inner, size = _mamba_inner(fields), fields.first(*NAMES["state_size"]) or 0
    groups = fields.first(*NAMES["state_groups"]) or 0
    channels = inner + 2 * groups * size
    kernel = fields.first(*NAMES["conv_kernel"]) or 0
    return State("convolution", (channels, kernel)), State("recurrent", (inner, size), float32=True)


def _mamba_inner(fields: Fields) -> int:
    """Channels of the state: heads times their width, or the hidden size times an expansion factor."""
    heads, dim = fields.first("mamba_num_heads"), fields.first("mamba_head_dim")
    if heads and dim:
        return heads * dim
    mamba1 = fields.has("state_size") and not fields.has("n_groups")
    stated = ("intermediate_size",) if mamba1 and fields.stated("intermediate_size") else ()
    inner = fields.first("mamba_d_ssm", *stated)
    if inner is not None:
        return inner
    factor = fields.number("mamba_expand" if fields.has("mamba_expand") else "expand")
    return int(factor * fields.size("hidden_size"))


def _gated_linear(fields: Fields) -> States:
    """Real-gated linear recurrent units: https://arxiv.org/abs/2402.19427."""
    width = fields.optional("lru_width") or fields.size("hidden_size")
    kernel = fields.size("conv1d_width") - 1
    return State("convolution", (width, kernel)), State("recurrent", (width,), float32=True)


def _four_convolutions(fields: Fields) -> States:
    """Short convolutions over keys, values, and the outputs of attention and MLP, kept in float32."""
    kernel, inner = fields.size("conv_kernel_size"), read_kv_heads(fields) * read_key_dim(fields)
    widths = (inner, inner, fields.size("hidden_size"), fields.size("hidden_size"))
    return tuple(State("convolution", (width, kernel), float32=True) for width in widths)


def _compressed_convolution(fields: Fields) -> States:
    """Two causal convolutions over queries and keys, and half a value carried over to the next token."""
    dim, kv_heads = read_key_dim(fields), read_kv_heads(fields)
    kernel = fields.size("cca_time0") + fields.size("cca_time1") - 2
    return State("convolution", ((read_heads(fields) + kv_heads) * dim, kernel)), State("value", (kv_heads * dim // 2,))


def _lightning(fields: Fields) -> States:
    """Lightning attention: https://arxiv.org/abs/2501.08313."""
    heads, dim = read_heads(fields), read_key_dim(fields)
    return (State("recurrent", (heads, dim, dim)),)


def _matrix_memory(fields: Fields) -> States:
    """xLSTM's matrix memory, normaliser and stabiliser, widths in multiples of 64: https://arxiv.org/abs/2405.04517."""
    heads, hidden = fields.size("num_heads"), fields.size("hidden_size")
    widths = (hidden * fields.number(name) for name in ("qk_dim_factor", "v_dim_factor"))
    key, value = (64 * math.ceil(width / 64) // heads for width in widths)
    return State("recurrent", (heads, key, value)), State("recurrent", (heads, key)), State("recurrent", (heads,))


def _receptance(fields: Fields) -> States:
    """RWKV-4: the last hidden states of both blocks, and three running sums: https://arxiv.org/abs/2305.13048."""
    width = fields.optional("attention_hidden_size") or fields.size("hidden_size")
    return State("shift", (2, fields.size("hidden_size"))), State("recurrent", (3, width), float32=True)


def _matrix_valued(fields: Fields) -> States:
    """RWKV-6 and 7: the last hidden states, and a square matrix for each head: https://arxiv.org/abs/2404.05892."""
    hidden, head = fields.size("hidden_size"), fields.size("wkv_head_size")
    shift = State("token shift", (fields.size("token_shift_count"), hidden))
    return shift, State("recurrent", (hidden, head), float32=True)


Reader = Callable[[Fields], States]

# The fields that give a state its size: the first row whose fields all have values applies, else the family's.
BY_FIELDS: tuple[tuple[tuple[str, ...], Reader], ...] = (
    (("cca_time0", "cca_time1"), _compressed_convolution),
    (("swa_head_dim", "conv_kernel_size"), _four_convolutions),
    (("linear_num_value_heads", "linear_key_head_dim"), _gated_delta),
    (("linear_num_heads", "linear_head_dim"), _kimi_delta),
    (("conv_L_cache",), _short_conv),
    (("conv1d_width",), _gated_linear),
    (("wkv_head_size",), _matrix_valued),
    *(((name,), _mamba) for name in NAMES["state_size"]),
)
BY_FAMILY: Mapping[str, Reader] = {"minimax": _lightning, "rwkv": _receptance, "xlstm": _matrix_memory}
