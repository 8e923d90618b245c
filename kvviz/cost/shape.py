"""A decoder as its work sees it: the blocks of every layer and of the whole, read from a config alone.

Standard library only. The reader of caches (`spec.py`) says what each layer keeps; here stand the widths of what it
computes. What can't be counted is refused with a `ConfigError` that says why.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kvviz.base.errors import ConfigError
from kvviz.cost.blocks import Attention, Block, Matrix
from kvviz.cost.mlps import dense, read_mlp, read_nemotron
from kvviz.cost.token_mixers import read_attention, read_linear
from kvviz.models import layer_kinds as patterns
from kvviz.models.config_fields import Fields, families
from kvviz.models.heads import read_heads
from kvviz.models.layers import LayerSpec, of_layer, read_layers
from kvviz.models.spec import ModelSpec, decoder_fields


@dataclass(frozen=True)
class Shape:
    """A decoder's blocks, layer by layer, and those that stand outside the layers (the head among them)."""

    spec: ModelSpec
    hidden: int
    layers: tuple[tuple[Block, ...], ...]
    outside: tuple[Block, ...]
    givers: tuple[int, ...] = ()  # of each layer that keeps nothing of its own, the one whose keys and values it reads

    @cached_property
    def counts(self) -> Counter[Block]:
        """Each block, and how often it is there: layers are mostly alike."""
        return Counter(self.blocks)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All of them."""
        return (*(block for layer in self.layers for block in layer), *self.outside)

    @property
    def weights(self) -> int:
        """Elements of all matrices and convolutions, a shared one as often as it is used; no tables, norms, biases."""
        return sum(block.weights for block in self.blocks)


def read_shape(config: Mapping[str, Any], *, name: str = "", source: str = "") -> Shape:
    """Read a Hugging Face config (the dict of a config.json).

    Raises ConfigError naming what can't be read, or what can't be counted and why.
    """
    spec, fields = ModelSpec.from_config(config, name=name, source=source), decoder_fields(config)
    why = _UNCOUNTED.get(fields.model_type)
    if why:
        raise ConfigError(f"can't count {fields.model_type} because {why}")
    hidden, rows = fields.size("hidden_size"), read_layers(fields)
    types = patterns.layer_types(fields, spec.decoder_layers)
    layers = [_layer(fields, rows, types, i, hidden) for i in range(spec.decoder_layers)]
    if spec.crossing:
        layers = [[*layer, *_cross(fields, rows[spec.decoder_layers + i], hidden)] for i, layer in enumerate(layers)]
    givers = tuple(_giver(rows, types, i) for i in range(spec.decoder_layers) if rows[i].kind == "shared")
    return Shape(spec, hidden, tuple(tuple(layer) for layer in layers), tuple(_outside(fields, spec, hidden)), givers)


_NO_CACHE = "its model code keeps no cache, so that there is no cached step"
_OWN_WAY = (
    *("axk2", "canary_decoder", "cohere_asr", "cpmant", "dia", "dia_decoder", "diffllama", "electra", "hrm_text"),
    *("hy_v4", "inkling_text", "inkling2_text", "jetmoe", "longcat_flash", "minimax_m3_vl_text", "mllama_text_model"),
    *("moshi", "musicgen_decoder", "musicgen_melody_decoder", "nllb-moe", "prophetnet", "rembert", "roc_bert"),
    *("switch_transformers", "xlstm", "xmod", "zamba", "zaya"),
)
_UNCOUNTED = {
    "openai-gpt": _NO_CACHE,
    "xlm": _NO_CACHE,
    "dbrx": "its experts stand in an ffn_config that is not read here",
    "doge": "it scores every value of the context on top of the keys",
    **dict.fromkeys(_OWN_WAY, "it computes more than the usual blocks, and that is not written down here"),
}


def _layer(fields: Fields, rows: tuple[LayerSpec, ...], types: list[str], index: int, hidden: int) -> list[Block]:
    kind, row = types[index], rows[index]
    own = of_layer(fields, index, kind)
    if kind in (patterns.MLP, patterns.MOE):
        return read_nemotron(own, hidden, experts=kind == patterns.MOE)
    if fields.model_type == "zamba2":
        return _zamba2(own, kind, row, hidden)
    mixing: list[Block] = []
    if kind in (patterns.LINEAR, patterns.CONV, patterns.HYBRID, patterns.HYBRID_SLIDING):
        mixing += read_linear(own, kind, hidden)
    if kind not in (patterns.LINEAR, patterns.CONV):
        shared = rows[_giver(rows, types, index)] if row.kind == "shared" else None
        mixing += read_attention(own, row, hidden, shared=shared)
    if fields.model_type == "nemotron_h":
        return mixing
    more = _EXTRA.get(fields.model_type)
    return [*mixing, *read_mlp(own, index, hidden), *(more(own, index, hidden) if more else [])]


def _giver(rows: tuple[LayerSpec, ...], types: list[str], index: int) -> int:
    """The layer whose keys and values a sharing one reads: the last of its type that keeps some."""
    return next(i for i in reversed(range(index)) if types[i] == types[index] and rows[i].kind != "shared")


def _cross(fields: Fields, row: LayerSpec, hidden: int) -> list[Block]:
    """Attention to an encoder's output, whose keys and values are made once, at the prefill."""
    heads = read_heads(fields)
    return [
        Matrix("cross", hidden, heads * row.key_dim),
        *[Matrix("cross", hidden, row.kv_heads * dim, over="source") for dim in (row.key_dim, row.value_dim)],
        Matrix("cross", heads * row.value_dim, hidden),
        Attention(heads, row.key_dim, row.value_dim, across=True, term="cross"),
    ]


def _outside(fields: Fields, spec: ModelSpec, hidden: int) -> list[Block]:
    """The head, what stands before it, and what stands behind the embeddings.

    Encoder-decoders, and the families noted so, compute it for every position, others for the last one.
    """
    whole = spec.crossing or bool(families().get(fields.model_type, {}).get("whole_head"))
    if spec.vocab_size is None:
        raise ConfigError("can't count the head because the config has no vocab_size")
    more = _OUTSIDE.get(fields.model_type)
    inner = fields.optional("word_embed_proj_dim") or hidden
    narrowed = [Matrix("extra", inner, hidden), Matrix("extra", hidden, inner)] if inner != hidden else []
    rows = "new" if whole else "last"
    turned = [Matrix("head", hidden, hidden, over=rows)] * _TURNED.get(fields.model_type, 0)
    head = Matrix("head", inner, spec.vocab_size, over=rows)
    return [*narrowed, *(more(fields, hidden) if more else []), *turned, head]


# Families whose head begins with square matrices.
_TURNED = dict.fromkeys(
    (
        "bert",
        "camembert",
        "data2vec-text",
        "ernie",
        "megatron-bert",
        "modernbert-decoder",
        "roberta",
        "roberta-prelayernorm",
        "roformer",
        "xlm-roberta",
        "xlm-roberta-xl",
    ),
    1,
) | {"big_bird": 2}


def _gemma3n(fields: Fields, index: int, hidden: int) -> list[Block]:
    """Alternating updates, a low-rank branch, and an embedding of each layer's own."""
    inputs, rank, own = (fields.size(n) for n in ("altup_num_inputs", "laurel_rank", "hidden_size_per_layer_input"))
    return [
        Matrix("extra", inputs, inputs),
        Matrix("extra", hidden * inputs, inputs, weightless=True),  # streams mixed by coefficients made on the spot
        *[Matrix("extra", hidden, inputs)] * 2,
        Matrix("extra", inputs, inputs * inputs),
        Matrix("extra", hidden, rank),
        Matrix("extra", rank, hidden),
        Matrix("extra", hidden, own),
        Matrix("extra", own, hidden),
    ]


def _gemma3n_outside(fields: Fields, hidden: int) -> list[Block]:
    count, own = fields.size("num_hidden_layers"), fields.size("hidden_size_per_layer_input")
    streams = fields.size("altup_num_inputs") - 1
    return [Matrix("extra", hidden, count * own), *[Matrix("extra", hidden, hidden)] * (2 * streams)]


def _gemma4(fields: Fields, index: int, hidden: int) -> list[Block]:
    own = fields.optional("hidden_size_per_layer_input", 0)
    return [Matrix("extra", hidden, own), Matrix("extra", own, hidden)] if own else []


def _gemma4_outside(fields: Fields, hidden: int) -> list[Block]:
    own = fields.optional("hidden_size_per_layer_input", 0)
    return [Matrix("extra", hidden, fields.size("num_hidden_layers") * own)] if own else []


def _zamba2(fields: Fields, kind: str, row: LayerSpec, hidden: int) -> list[Block]:
    """Mamba-2 layers; some are preceded by one of a few shared blocks of attention, twice as wide, and an MLP."""
    if kind == patterns.LINEAR:
        return read_linear(fields, kind, hidden)
    if fields.flag("use_shared_attention_adapter"):
        raise ConfigError("can't count zamba2 because use_shared_attention_adapter is true, and that is not read here")
    heads, width = read_heads(fields), fields.optional("intermediate_size") or 4 * hidden
    rank = fields.optional("adapter_rank") or 0
    return [
        *[Matrix("projections", 2 * hidden, heads * row.key_dim)] * 3,
        Matrix("projections", heads * row.value_dim, hidden),
        Attention(heads, row.key_dim, row.value_dim, row.window),
        *dense(fields, hidden, width),
        Matrix("extra", hidden, rank),
        Matrix("extra", rank, 2 * width),
        Matrix("extra", hidden, hidden),
        *read_linear(fields, kind, hidden),
    ]


_EXTRA = {"gemma4_text": _gemma4, "gemma4_unified_text": _gemma4, "gemma3n_text": _gemma3n}
_OUTSIDE = {"gemma4_text": _gemma4_outside, "gemma4_unified_text": _gemma4_outside, "gemma3n_text": _gemma3n_outside}
