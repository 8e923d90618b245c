"""Bytes of a forward's activations beside weights and cache, as transformers' model code computes it.

They are the peak of what is alive at once. A forward's widest moment is one of a few, and each is a sum of tensors
whose shapes the config gives: the tokens' rows, the projections, the matrix of scores, the MLP's inner rows, the
logits. The moments are those of the last layer, when the cache is as large as it gets. `bench/activations.py` holds
them against the allocator of a real forward. What a kernel takes for itself, such as the workspace of a matrix product,
isn't counted.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvviz.base.errors import ConfigError
from kvviz.base.precision import precision
from kvviz.cost.mlps import chosen, dense_width, expert_width, has_experts, is_gated
from kvviz.models.config_fields import NAMES, Fields, checked
from kvviz.models.heads import read_heads
from kvviz.models.spec import ModelSpec, decoder_fields

_FAMILIES: Mapping[str, Any] = tomllib.loads(
    Path(__file__).with_name("family_activations.toml").read_text(encoding="utf-8")
)
ATTENTIONS = ("sdpa", "eager")


@dataclass(frozen=True)
class Widths:
    """The sizes of a decoder's tensors, in elements for each token; of layers that differ, the widest.

    `queries`, `keys` and `values` are over all heads of a layer. `inner`: the width of the MLP, `inner_tensors` how
    many rows of it are alive at once; `kept_rows`: those of the hidden width that the code still names then. `chosen`:
    the experts that a token passes, 0 for an MLP without experts. `window`: the longest window, None if no layer has
    one; `windows_only`: every layer has one. `unlike_heads`: the head dims of keys and values differ.
    """

    hidden: int
    heads: int
    queries: int
    keys: int
    values: int
    rotary: int
    inner: int
    inner_tensors: int
    chosen: int
    vocab: int
    window: int | None
    windows_only: bool
    learned_positions: bool
    kept_rows: int
    joint_projection: bool
    normed_queries: bool
    plain_softmax: bool
    own_attention: bool
    unlike_heads: bool

    @property
    def grouped(self) -> bool:
        """Whether several query heads share a KV head, so that eager attention repeats keys and values."""
        return self.keys < self.queries


def read_widths(config: Mapping[str, object]) -> Widths:
    """Read a config.json's dict. Raises ConfigError naming what can't be read."""
    fields, spec = decoder_fields(config), ModelSpec.from_config(config)
    hidden, kind = fields.size("hidden_size"), fields.model_type
    layers = [layer.as_stored for layer in spec.layers[: spec.decoder_layers] if layer.kv_heads]
    widest = max(layers, key=lambda layer: layer.kv_heads * (layer.key_dim + layer.value_dim), default=None)
    heads = read_heads(fields) if widest else 0
    latent = any(layer.latent for layer in layers)
    key_dim = _latent_key_dim(fields) if latent else widest.key_dim if widest else 0
    value_dim = fields.optional("v_head_dim", 0) if latent else widest.value_dim if widest else 0
    plain, experts = _inner(fields, spec, hidden)
    learned = kind in _FAMILIES["learned_positions"]
    return Widths(
        hidden=hidden,
        heads=heads,
        queries=heads * key_dim,
        keys=widest.kv_heads * widest.key_dim if widest else 0,
        values=widest.kv_heads * widest.value_dim if widest else 0,
        rotary=0 if learned else key_dim,
        inner=experts[0] if experts else plain,
        inner_tensors=_inner_tensors(fields),
        chosen=experts[1] if experts else 0,
        vocab=spec.vocab_size or 0,
        window=max((layer.window for layer in layers if layer.window), default=None),
        windows_only=all(layer.window for layer in layers),
        learned_positions=learned,
        kept_rows=_FAMILIES["kept_rows"].get(kind, 0),
        joint_projection=kind in _FAMILIES["joint_projection"],
        normed_queries=kind in _FAMILIES["normed_queries"],
        plain_softmax=kind in _FAMILIES["plain_softmax"],
        own_attention=kind in _FAMILIES["own_attention"],
        unlike_heads=bool(widest) and key_dim != value_dim,
    )


def _latent_key_dim(fields: Fields) -> int:
    return (fields.optional("qk_nope_head_dim", 0) or 0) + (fields.optional("qk_rope_head_dim", 0) or 0)


def _inner(fields: Fields, spec: ModelSpec, hidden: int) -> tuple[int, tuple[int, int] | None]:
    """The width of the widest plain MLP, and that of an expert with how many of them a token passes."""
    count = spec.decoder_layers
    with_experts = [index for index in range(count) if has_experts(fields, index)]
    plain = max((dense_width(fields, i, hidden) for i in range(count) if i not in with_experts), default=0)
    if not with_experts:
        return plain, None
    used = chosen(fields, fields.first(*NAMES["experts"]) or 1)
    experts = expert_width(fields, hidden), used
    return plain, experts if used * experts[0] >= plain else None


def _inner_tensors(fields: Fields) -> int:
    """Rows of the MLP's inner width that are alive at once: with a gate the activated gate, up and their product."""
    names = ("activation_function", "hidden_act", "hidden_activation")
    name = next((own for own in map(fields.raw, names) if own), _FAMILIES["activation"].get(fields.model_type))
    needed = _FAMILIES["activation_tensors"].get(name, 2)
    joint = fields.model_type in _FAMILIES["joint_gate"]
    return max(4 if joint else 3, needed) if is_gated(fields) else needed


@dataclass(frozen=True)
class Activations:
    """Bytes alive beside weights and cache at each of a forward's moments; `nbytes` at the widest one."""

    moments: Mapping[str, int]

    @property
    def widest(self) -> str:
        """Name of the widest moment."""
        return max(self.moments, key=lambda name: self.moments[name])

    @property
    def nbytes(self) -> int:
        """Bytes at the widest moment."""
        return self.moments[self.widest]


def activations(
    widths: Widths,
    new: int,
    *,
    held: int = 0,
    batch: int = 1,
    dtype: str = "bfloat16",
    attention: str = "sdpa",
    whole_head: bool = False,
    tensor_parallel: int = 1,
) -> Activations:
    """The activations of a forward over `new` tokens of each of `batch` sequences, after `held` cached ones.

    A prefill has none held, a decode step has one new token. `whole_head`: logits of every position, not of the last
    alone. With `tensor_parallel` devices each has its share of heads, of the MLP's width and of the vocabulary, and all
    of the hidden rows. The cache is a dynamic one, which a step copies layer by layer into a longer one. Raises
    ConfigError for a count below 1 or an unknown dtype or attention.
    """
    for name, value, least in (("new", new, 1), ("held", held, 0), ("batch", batch, 1)):
        checked(name, value, least)
    if attention not in ATTENTIONS:
        raise ConfigError(f"attention is {attention!r}; it is one of {', '.join(ATTENTIONS)}")
    size, share = precision(dtype).state_bytes, checked("tensor_parallel", tensor_parallel)
    rows, half = batch * new, size < 4
    # a layer with a window holds one token less than it reaches
    held = min(held, widths.window - 1) if widths.windows_only and widths.window else held
    seen = held + new
    hidden = rows * widths.hidden * size
    queries = rows * widths.queries // share * size
    keys, values = (rows * -(-width // share) * size for width in (widths.keys, widths.values))
    inner = rows * widths.inner // share * size
    heads = batch * widths.heads // share
    scores = heads * new * seen  # elements
    repeated = 2 * heads * seen * (widths.queries // max(1, widths.heads)) * size if widths.grouped else 0
    positions = new * widths.hidden if widths.learned_positions else 2 * new * widths.rotary
    # alive until the end: the embeddings of the tokens, the layer's input, positions and their numbers
    base = 2 * hidden + positions * size + 8 * new
    masked = attention == "sdpa" and new > 1 and widths.window is not None and seen > widths.window
    if attention == "eager":
        base += batch * new * seen * size  # a mask of numbers, to be added
    elif masked:
        base += batch * new * seen  # a mask of truths, which sdpa needs only for a window
    attending = base + hidden + (queries + keys + values if widths.joint_projection else queries)
    returned = scores * size if attention == "eager" else 0  # a layer keeps the scores that attention returned
    after = base + (2 + widths.kept_rows) * hidden + returned
    moments = {}
    if attention == "eager":
        upcast = size if widths.plain_softmax or not half else 8
        moments["attention"] = attending + repeated + scores * (size + upcast)
        weighted = 2 * queries if new > 1 else queries  # of several tokens a second time, in the tokens' order
        moments["weighted values"] = attending + repeated + scores * size + weighted
    else:  # its output, the sums of its rows in float32, and with a mask that of numbers, and repeated heads
        masks = repeated + batch * new * seen * size if masked else 0
        moments["attention"] = attending + queries + 4 * heads * new + masks
    if widths.rotary and not widths.joint_projection:
        turned = max(4 * queries + keys + values, 2 * queries + 4 * keys + values)
        moments["rotary positions"] = base + hidden + turned - keys - values  # before the keys and values are cached
    if widths.normed_queries and half:
        moments["norm of the queries"] = base + hidden + 5 * queries + 8 * heads * new - keys - values
    if held and widths.keys:
        moments["lengthening the cache"] = attending + batch * held * -(-widths.keys // share) * size
    if widths.inner:
        # each chosen expert: its input, gate and up together, the activated gate, their product; or its output thrice
        experts = widths.chosen * max(hidden + 4 * inner, 4 * hidden)
        moments["MLP"] = after + (experts or widths.inner_tensors * inner)
    logits = rows if whole_head else batch
    moments["logits"] = hidden + logits * widths.vocab * size
    return Activations(moments)
