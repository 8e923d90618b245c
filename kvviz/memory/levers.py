"""What makes one cache smaller than another: the factors between two models, and the largest change to one."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from kvviz.base.words import two_digits
from kvviz.memory.engine_views import view_named
from kvviz.memory.formula import Memory
from kvviz.memory.what_if import attending, ideas
from kvviz.models.spec import ModelSpec

ALIKE = 1.005  # times: a smaller factor counts as no change


@dataclass(frozen=True)
class Lever:
    """One reason for a difference; with it the cache has `factor` times the bytes.

    `trained`: whether a model has to be trained that way.
    """

    name: str
    factor: float
    trained: bool = True

    def __str__(self) -> str:
        """Words such as "GQA-8 to MLA: 1/3.6"."""
        return f"{self.name}: {fraction(self.factor)}"


def fraction(factor: float) -> str:
    """A factor as one reads it aloud: 1/3.6 for 0.28, and 2.4× for 2.4."""
    times = max(factor, 1 / factor)
    digits = f"{times:.3g}" if times < 1.1 else two_digits(times)
    return f"1/{digits}" if factor < 1 else f"{digits}×"


def counted(spec: ModelSpec, view: str) -> ModelSpec:
    """The model as a view counts its layers: transformers stores more of some than the architecture needs."""
    return replace(spec, layers=tuple(view_named(view).counted(spec.layers)))


def attention(spec: ModelSpec) -> str:
    """The short name of how query heads share keys and values: MHA-32, GQA-8, MQA or MLA; "" for a model without."""
    own = attending(spec)
    if any(layer.latent for layer in own):
        return "MLA"
    kv_heads = {layer.kv_heads for layer in own}
    if kv_heads == {1}:
        return "MQA"
    if kv_heads and kv_heads == {spec.heads}:
        return f"MHA-{spec.heads}"
    return f"GQA-{'/'.join(map(str, sorted(kv_heads)))}" if kv_heads else ""


@dataclass(frozen=True)
class Kept:
    """The numbers that one token leaves in one layer, as a sum in words; with MHA the layer would keep `as_mha`."""

    sum: str
    numbers: int
    as_mha: int | None = None
    mha_sum: str = ""


def kept(spec: ModelSpec, config: Mapping[str, object]) -> Kept | None:
    """What a token leaves in each layer; None if layers differ, have windows, or keep anything else beside it.

    A model with latent rows has as many numbers with MHA as its keys and values have once they are computed from the
    latent, by the widths of its config: https://arxiv.org/abs/2405.04434.
    """
    layers = {(row.kv_heads, row.key_dim, row.value_dim, row.latent) for row in spec.layers}
    plain = all(row.kind in ("full", "latent") and not row.rows and not row.states for row in spec.layers)
    if len(layers) != 1 or not plain or not spec.heads:
        return None
    kv_heads, keys, values, latent = layers.pop()
    if latent:
        widths = [config.get(name) for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")]
        if not all(isinstance(width, int) for width in widths):
            return Kept(f"{keys} + {values}", keys + values)
        nope, rotary, value = (int(str(width)) for width in widths)
        whole = f"{spec.heads} heads × ({nope + rotary} + {value})"
        return Kept(f"{keys} + {values}", keys + values, spec.heads * (nope + rotary + value), whole)
    if not kv_heads or keys != values:
        return None
    named = f"{kv_heads} KV head{'s' * (kv_heads != 1)}"
    whole = f"2 × {spec.heads} × {keys}"
    return Kept(f"2 × {named} × {keys}", 2 * kv_heads * keys, 2 * spec.heads * keys, whole)


@lru_cache(maxsize=256)
def largest_lever(spec: ModelSpec, memory: Memory) -> Lever | None:
    """The one change of `ideas` that saves most; None if none saves anything."""
    best = min(ideas(spec, memory), key=lambda idea: idea.factor, default=None)
    if best is None or best.factor * ALIKE > 1:
        return None
    short = {"GQA, 8 KV heads": "GQA-8", "Latent rows": "MLA"}.get(best.name, best.name)
    kind = attention(spec) if short in ("MQA", "GQA-8", "MLA") else memory.dtype if best.of_dtype else ""
    return Lever(f"{kind} to {short}" if kind else short[0].lower() + short[1:], best.factor, not best.of_dtype)


def levers(one: ModelSpec, first: Memory, another: ModelSpec, second: Memory) -> tuple[Lever, ...]:
    """The factors from one model's bytes to another's, the largest first; their product is the whole ratio.

    They are the number of layers that cache tokens, the KV heads of such a layer and the bytes of a token in one of
    them (with latent rows both as one), the share of the tokens that it holds, and what comes on top: states, index
    keys.
    Empty if one of the two caches no tokens.
    """
    ours, theirs = _Parts.of(first), _Parts.of(second)
    if not ours or not theirs:
        return ()
    names, heads = (attention(one), attention(another)), theirs.heads / ours.heads
    width = theirs.row / ours.row / heads
    kinds = " to ".join(names) if names[0] != names[1] else f"{ours.heads:.3g} to {theirs.heads:.3g} KV heads"
    if "MLA" in names:
        heads, width = heads * width, 1.0
    windows = f"only a window kept in {theirs.windows} of {theirs.layers} layers"
    if ours.windows:
        before = f"{ours.windows} of {ours.layers}"
        windows = f"{before} layers with windows to {theirs.windows} of {theirs.layers}"
    found = (
        Lever(f"{ours.layers} to {theirs.layers} layers", theirs.layers / ours.layers),
        Lever(kinds, heads),
        Lever(f"{ours.row / ours.heads:,.0f} to {theirs.row / theirs.heads:,.0f} B for each token and KV head", width),
        Lever(windows, theirs.held / ours.held),
        Lever("states and index keys on top", theirs.beside / ours.beside),
    )
    telling = [lever for lever in found if max(lever.factor, 1 / lever.factor) > ALIKE]
    return tuple(sorted(telling, key=lambda lever: -abs(math.log(lever.factor))))


@dataclass(frozen=True)
class _Parts:
    """A cache's bytes as a product: layers x bytes of a token's row x tokens held x whatever is beside them.

    `heads`: the KV heads of a layer; those, the row and the tokens are means over the layers. `windows`: layers whose
    window is shorter than the text.
    """

    layers: int
    heads: float
    row: float
    held: float
    beside: float
    windows: int

    @classmethod
    def of(cls, memory: Memory) -> "_Parts | None":
        """The parts of a memory; None if it holds no tokens."""
        rows = [row for row in memory.layers if row.held and row.nbytes > row.state_bytes]
        if not rows:
            return None
        nbytes = sum(row.nbytes - row.state_bytes for row in rows)
        each = sum((row.nbytes - row.state_bytes) / row.held for row in rows)
        heads, windows = sum(max(1, row.kv_heads) for row in rows), sum(row.held < row.seen for row in rows)
        count = len(rows)
        return cls(count, heads / count, each / count, nbytes / each, memory.total_bytes / nbytes, windows)
