"""Read from a config what a decoder computes: the blocks of work in each of its layers and outside the layers."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from kvviz.base.errors import ConfigError
from kvviz.cost.blocks import Attention, Block, Matrix, matrices
from kvviz.cost.family_costs import FAMILY_COSTS
from kvviz.cost.mlps import dense, read_mlp, read_nemotron
from kvviz.cost.token_mixers import read_attention, read_linear
from kvviz.models import layer_kinds
from kvviz.models.config_fields import Family, Fields, families
from kvviz.models.custom_code import check_known
from kvviz.models.heads import read_heads
from kvviz.models.layers import LayerSpec, of_layer, read_layers
from kvviz.models.read_lately import kept_lately
from kvviz.models.spec import ModelSpec, decoder_fields


@dataclass(frozen=True)
class Shape:
    """A decoder's blocks: those of each layer, and those outside the layers, such as the head.

    `givers`: for each layer that shares another's keys and values, the number of the layer whose cache it reads.
    """

    spec: ModelSpec
    hidden: int
    layers: tuple[tuple[Block, ...], ...]
    outside: tuple[Block, ...]
    givers: tuple[int, ...] = ()

    @cached_property
    def counts(self) -> Counter[Block]:
        """Each distinct block with its number of occurrences; layers are mostly alike, so this makes counting fast."""
        return Counter((*(block for layer in self.layers for block in layer), *self.outside))

    @cached_property
    def caches(self) -> Counter[LayerSpec]:
        """Each distinct layer's cache with its number of occurrences."""
        return Counter(self.spec.layers)

    @cached_property
    def caches_read(self) -> Counter[LayerSpec]:
        """Each distinct cache with the number of layers that read it: its own, and those that share it."""
        return self.caches + Counter(self.spec.layers[giver] for giver in self.givers)


@kept_lately
def read_shape(config: Mapping[str, object], name: str, source: str) -> Shape:
    """Read a config.json's dict. Raises ConfigError naming what can't be read, or what can't be counted and why."""
    spec, fields = ModelSpec.from_config(config, name=name, source=source), decoder_fields(config)
    check_known(fields)
    why = next((why for why, types in FAMILY_COSTS["uncounted"].items() if fields.model_type in types), None)
    if fields.drafting:
        why = "it drafts with another model's keys and values"
    if why:
        raise ConfigError(f"can't count {fields.model_type} because {why}")
    hidden, rows = fields.size("hidden_size"), read_layers(fields)
    types = layer_kinds.layer_types(fields, spec.decoder_layers)
    layers = [_layer(fields, rows, types, i, hidden) for i in range(spec.decoder_layers)]
    if spec.crossing:
        layers = [[*layer, *_cross(fields, rows[spec.decoder_layers + i], hidden)] for i, layer in enumerate(layers)]
    givers = tuple(_giver(rows, types, i) for i in range(spec.decoder_layers) if rows[i].kind == "shared")
    return Shape(spec, hidden, tuple(tuple(layer) for layer in layers), tuple(_outside(fields, spec, hidden)), givers)


def _layer(fields: Fields, rows: tuple[LayerSpec, ...], types: list[str], index: int, hidden: int) -> list[Block]:
    kind, row = types[index], rows[index]
    own = of_layer(fields, index, kind)
    if kind in (layer_kinds.MLP, layer_kinds.MOE):
        return read_nemotron(own, hidden, experts=kind == layer_kinds.MOE)
    if fields.model_type == "zamba2":
        return _zamba2(own, kind, row, hidden)
    mixing: list[Block] = []
    if kind in (layer_kinds.LINEAR, layer_kinds.CONV, layer_kinds.HYBRID, layer_kinds.HYBRID_SLIDING):
        mixing += read_linear(own, kind, hidden)
    if kind not in (layer_kinds.LINEAR, layer_kinds.CONV):
        shared = rows[_giver(rows, types, index)] if row.kind == "shared" else None
        mixing += read_attention(own, row, hidden, shared=shared)
    extra = _EXTRA.get(fields.model_type)
    return [*mixing, *read_mlp(own, index, hidden), *(extra[0](own, hidden) if extra else [])]


def _giver(rows: tuple[LayerSpec, ...], types: list[str], index: int) -> int:
    """Return the layer whose keys and values a sharing layer reads: the last earlier one of its type that keeps any."""
    return next(i for i in reversed(range(index)) if types[i] == types[index] and rows[i].kind != "shared")


def _cross(fields: Fields, row: LayerSpec, hidden: int) -> list[Block]:
    """Return the blocks of attention to an encoder's output; the prefill computes its keys and values once."""
    heads = read_heads(fields)
    return [
        *matrices("cross", (hidden, heads * row.key_dim), (heads * row.value_dim, hidden)),
        *[Matrix("cross", hidden, row.kv_heads * dim, over="source") for dim in (row.key_dim, row.value_dim)],
        Attention(heads, row.key_dim, row.value_dim, across=True, term="cross"),
    ]


def _outside(fields: Fields, spec: ModelSpec, hidden: int) -> list[Block]:
    """Return the blocks after the embeddings, before the head, and the head, which some compute for every position."""
    whole = spec.crossing or bool(families().get(fields.model_type, Family()).get("whole_head"))
    if spec.vocab_size is None:
        raise ConfigError("can't count the head because the config has no vocab_size")
    extra = _EXTRA.get(fields.model_type)
    inner = fields.optional("word_embed_proj_dim") or hidden
    narrowed = matrices("extra", (inner, hidden), (hidden, inner)) if inner != hidden else []
    rows = "new" if whole else "last"
    square = [Matrix("head", hidden, hidden, over=rows)] * FAMILY_COSTS["head_matrices"].get(fields.model_type, 0)
    head = Matrix("head", inner, spec.vocab_size, over=rows)
    return [*narrowed, *(extra[1](fields, hidden) if extra else []), *square, head]


def _gemma3n(fields: Fields, hidden: int) -> list[Block]:
    """Gemma 3n: alternating updates, the low-rank branch, and the per-layer embedding."""
    inputs, rank, own = (fields.size(n) for n in ("altup_num_inputs", "laurel_rank", "hidden_size_per_layer_input"))
    sizes = ((hidden, rank), (rank, hidden), (hidden, own), (own, hidden))
    return [
        *matrices("extra", (inputs, inputs), *[(hidden, inputs)] * 2, (inputs, inputs * inputs), *sizes),
        Matrix("extra", hidden * inputs, inputs, weightless=True),  # coefficients of this token mix the streams
    ]


def _gemma3n_outside(fields: Fields, hidden: int) -> list[Block]:
    streams = fields.size("altup_num_inputs") - 1
    return [*_gemma4_outside(fields, hidden), *matrices("extra", *[(hidden, hidden)] * (2 * streams))]


def _gemma4(fields: Fields, hidden: int) -> list[Block]:
    own = fields.optional("hidden_size_per_layer_input", 0)
    return matrices("extra", (hidden, own), (own, hidden)) if own else []


def _gemma4_outside(fields: Fields, hidden: int) -> list[Block]:
    own = fields.optional("hidden_size_per_layer_input", 0)
    return matrices("extra", (hidden, fields.size("num_hidden_layers") * own)) if own else []


def _zamba2(fields: Fields, kind: str, row: LayerSpec, hidden: int) -> list[Block]:
    """Zamba2: a Mamba-2 layer; a hybrid layer starts with a shared attention block of twice the width and an MLP."""
    if kind == layer_kinds.LINEAR:
        return read_linear(fields, kind, hidden)
    if fields.flag("use_shared_attention_adapter"):
        raise ConfigError("can't count zamba2 because use_shared_attention_adapter is true, and that is not read here")
    heads, width = read_heads(fields), fields.optional("intermediate_size") or 4 * hidden
    rank = fields.optional("adapter_rank") or 0
    return [
        *matrices("projections", *[(2 * hidden, heads * row.key_dim)] * 3, (heads * row.value_dim, hidden)),
        Attention(heads, row.key_dim, row.value_dim, row.window),
        *dense(fields, hidden, width),
        *matrices("extra", (hidden, rank), (rank, 2 * width), (hidden, hidden)),
        *read_linear(fields, kind, hidden),
    ]


# What a family computes in addition to the usual blocks: in each layer, and outside the layers.
_EXTRA: Mapping[str, tuple[Callable[[Fields, int], list[Block]], Callable[[Fields, int], list[Block]]]] = {
    "gemma3n_text": (_gemma3n, _gemma3n_outside),
    "gemma4_text": (_gemma4, _gemma4_outside),
    "gemma4_unified_text": (_gemma4, _gemma4_outside),
}
