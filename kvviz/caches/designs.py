"""One row for each cache design: all that kvviz knows of it but its code, which is in its own file. No torch here.

A new design is a class over `KVCache` in a file of its own, which has the formula of its bytes, and a table in
`designs.toml`. Modes, the default race, the formula, the charts and the tests find it by its row. Designs of one's own
(KVVIZ_DESIGNS) come last.
"""

import importlib
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from kvviz.base.errors import KvvizError
from kvviz.base.precision import Precision
from kvviz.caches import own_designs
from kvviz.memory.engine_views import BLOCK, token_bytes
from kvviz.models.layers import LayerSpec

if TYPE_CHECKING:
    from kvviz.caches.base import KVCache

BUDGET = 64  # tokens that a design which evicts keeps; few, so that a short run shows it
LEAST_BUDGET = 8  # with fewer, a vote of the newest would have nobody left to vote on
SINKS = 4  # of them, first tokens that `sinks` keeps; the paper has 4 in a budget of 1,024
GROUP = 32  # tokens that share a scale in each channel of the keys of `int8`, `int4` and `int2`, as in the paper
RESIDUAL = 32  # newest tokens in full precision; the paper has 128, too many for a short run to show

ByteRule = Callable[[LayerSpec, int, Precision], int]  # bytes of one layer after n tokens of one sequence


class Line(NamedTuple):
    """How charts draw a mode: its colour on a light and on a dark page, its dash and its marker."""

    light: str
    dark: str
    dash: str
    marker: str


@dataclass(frozen=True, kw_only=True)
class Account:
    """What is known of the bytes and of the time of a mode's cache; the defaults are those of transformers' cache.

    `nbytes` works out its bytes; without it they are those of the view hf-dynamic. `formula` puts that in words where
    they are not simply tokens times bytes a token. `slack` says why its storages are larger, `less` why its tensors may
    be smaller than the formula, `more` why larger, `elsewhere` where they lie if not in the device's memory, `beside`
    what else the mode keeps there. `slow` says what takes time, and whether that is the design or our simple code.
    `advice` is what to do where the mode computes something else than it promises.
    """

    nbytes: ByteRule | None = None
    formula: str = ""
    slack: str = "capacity for tokens to come, or a window that is a view of a longer tensor until the next step"
    less: str = ""
    more: str = ""
    elsewhere: str = ""
    beside: str = ""
    slow: str = ""
    advice: str = "leave it out"

    def takes(self, window: int | None) -> bool:
        """Whether a layer with this window is kept by `nbytes`; None is a layer without one."""
        return True

    def in_layer(self, number: int, layers: int) -> Self:
        """Return what is known of one layer: the `number`-th of the `layers` that this row describes."""
        return self


@dataclass(frozen=True, kw_only=True)
class Design(Account):
    """One cache design. `exact`: attention gets the very numbers that were appended. `source` names where it is from.

    `gloss` is what stands under its title in a chart: at most 32 characters.

    `cls` is "module:class", or "file:class" of a design of one's `own`. `windows` says what a layer with a window of
    its own gets: `own`, this design; `ring`, a ring of the window; `theirs`, transformers' own layer. Layers with
    windows of up to `least` tokens are transformers' in any case. Its `nbytes` is the formula of the class, unless
    the row has a rule of its own: that of a budget.
    """

    name: str
    title: str
    gloss: str = ""
    summary: str
    exact: bool = True
    cls: str
    source: str
    line: Line
    windows: str = "own"
    least: int = 0
    budget: int = 0  # tokens of each sequence and KV head that it keeps at most; 0 for a design that keeps all
    at_once: int = 1  # tokens that it evicts at a time
    pyramid: int = 0  # length of the text over which lower layers get more of the budget than higher ones; 0: all alike
    extra: int = 0  # bytes that it keeps beside each token's keys and values, in each KV head
    queries: bool = False  # beside them it keeps the newest `at_once` queries of each layer
    accelerator: bool = False  # needs a device with memory of its own, so it is not in the default race
    asked: bool = False  # raced only where it is asked for
    reads: bool = False  # needs the ids of the tokens that come
    work: str = ""  # how the cost model counts its step (`kvviz.cost.predict`); "" if it makes no prediction
    own: bool = False  # from a file of the visitor's (`own_designs`)

    def __post_init__(self) -> None:
        if self.nbytes is None:
            object.__setattr__(self, "nbytes", self._by_formula)

    def takes(self, window: int | None) -> bool:
        return window is None or (self.windows != "theirs" and window > self.least)

    def new(self, *, window: int | None = None, capacity: int | None = None) -> "KVCache":
        """An empty cache for one layer and for sequences of up to `capacity` tokens, where that is known."""
        if window is not None and self.windows == "ring":
            from kvviz.caches.ring import Ring

            return Ring(window=window, capacity=capacity)
        own = {"budget": self.budget} if self.budget else {}
        own |= {"at_once": self.at_once} if self.at_once > 1 else {}
        cls: Any = self.implementation()
        return cls(window=window, capacity=capacity, **own)

    def at(self, budget: int, *, pyramid: int = 0) -> "Design":
        """The same design with another budget; one that keeps all tokens stays as it is.

        As a `pyramid` the budget is a layer's on average: of a text of so many tokens, lower layers keep more.
        """
        if not self.budget:
            return self
        row = _row(self.name, _TABLE[self.name], budget)
        said = f"{row.formula}, with budgets that fall from layer to layer, {budget} tokens on average"
        return replace(row, pyramid=pyramid, formula=said) if pyramid else row

    def in_layer(self, number: int, layers: int) -> "Design":
        """The design with the budget of one of its layers, if these differ (`pyramid_budget`)."""
        if not self.pyramid:
            return self
        return self.at(pyramid_budget(self.budget, self.at_once, self.pyramid, number, layers))

    def implementation(self) -> "type[KVCache]":
        """The design's class. Raises KvvizError for a user's design that can't be loaded."""
        if self.own:
            return own_designs.load(self.cls, self.exact)
        module, _, name = self.cls.partition(":")
        return getattr(importlib.import_module(module), name)

    def _by_formula(self, layer: LayerSpec, n: int, element: Precision) -> int:
        """Bytes of one layer after n tokens of one sequence, as the design's class works them out."""
        if layer.window is not None and self.windows == "ring":
            return RING(layer, n, element)
        heads, key_dim, value_dim = layer.kv_heads, layer.key_dim, layer.value_dim
        return self.implementation().formula(n, layer.window, heads, key_dim, value_dim, element.row(1, 1))


# --- what they keep --------------------------------------------------------------------------------------------------


def _behind(n: int, window: int | None) -> int:
    """Tokens at the front that no future token can attend to: after 10 tokens a window of 4 has moved past 7."""
    return 0 if window is None else max(0, n - window + 1)


def _tokens(held: Callable[[int, int | None], int]) -> ByteRule:
    """Tokens held, as a function of the tokens seen and the window, x the bytes of a token."""
    return lambda layer, n, element: held(n, layer.window) * token_bytes(layer, element)


EVERY_TOKEN = _tokens(lambda n, window: n - _behind(n, window))
RING = _tokens(lambda n, window: n if window is None else min(n, window))


def held_within(budget: int, at_once: int, n: int) -> int:
    """Tokens held after n of them, by a design that evicts `at_once` of them whenever more than `budget` would be held.

    With a budget of 64 and 16 at once, after 64, 65, 66, 80 and 81 tokens: 64, 49, 50, 64 and 49.
    """
    return n if n <= budget else budget - at_once + 1 + (n - budget - 1) % at_once


def _within(budget: int, at_once: int, extra: int) -> ByteRule:
    """Tokens held within a budget, with `extra` bytes for each in each KV head, for its position and its score."""

    def count(layer: LayerSpec, n: int, element: Precision) -> int:
        return held_within(budget, at_once, n) * (token_bytes(layer, element) + extra * layer.kv_heads)

    return count


LEAST_SHARE = 20  # a pyramid's top layer keeps this part of the mean budget, as in PyramidKV's own code


def pyramid_budget(budget: int, at_once: int, tokens: int, number: int, layers: int) -> int:
    """Tokens that one of so many layers keeps if their mean is `budget`: fewer from each layer to the next.

    What is beyond `at_once` tokens in each layer falls from layer 0 on in equal steps, from nearly twice the mean to a
    twentieth of it; no layer keeps more than the text's `tokens`, and none fewer than LEAST_BUDGET. PyramidKV,
    https://arxiv.org/abs/2406.02069. With a budget of 64, one at a time, of 1,000 tokens in 4 layers: 120, 83, 45, 8.
    """
    base = at_once if at_once > 1 else 0
    mean = budget - base
    least = max(mean / LEAST_SHARE, min(mean, LEAST_BUDGET - base))
    most = min(2 * mean - least, max(mean, tokens - base))
    return base + round(most - number * 2 * (most - mean) / (layers - 1)) if layers > 1 else budget


def tokens_of(budget: str, tokens: int) -> int:
    """Return a budget in tokens: "128", or a percentage such as "25%" of a text of so many `tokens`.

    Raises KvvizError, which says what is possible.
    """
    number = budget.strip().removesuffix("%").strip()
    percent = budget.strip().endswith("%")
    if not number.isdecimal() or not (1 <= int(number) <= (100 if percent else 1_000_000)):
        raise KvvizError(f"a budget is a number of tokens such as 128, or a percentage such as 25%, not {budget!r}")
    return max(LEAST_BUDGET, math.ceil(int(number) * tokens / 100) if percent else int(number))


# --- the rows --------------------------------------------------------------------------------------------------------

_SIZES = {"BLOCK": BLOCK, "SPARE": BLOCK - 1, "SINKS": SINKS}
_SIZES |= {"GROUP": GROUP, "RESIDUAL": RESIDUAL, "NEWEST": RESIDUAL + GROUP - 1}


def _row(name: str, fields: Mapping[str, Any], budget: int = BUDGET) -> Design:
    """A design from its table in designs.toml; a table of one that evicts says how many tokens at once."""
    at_once = min(fields.get("at_once", 0), budget // 2)
    own = {"budget": budget, "at_once": at_once} if at_once else {}
    sizes = {**_SIZES, "BUDGET": budget, "WINDOW": budget - SINKS, "AT_ONCE": at_once}
    texts = {key: value.format(**sizes) for key, value in fields.items() if isinstance(value, str)}
    rule = _within(budget, at_once, fields.get("extra", 0)) if at_once else None
    return Design(name=name, nbytes=rule, **{**fields, **texts, **own, "line": Line(*fields["line"])})


# Lines of users' designs; after the last line the first is taken again.
_OWN_LINES = (
    Line("#A3005C", "#FF9BCB", "solid", "asterisk"),
    Line("#00698C", "#7FD4F0", "dash", "bowtie"),
    Line("#5B6B00", "#CBDD6B", "dot", "hash"),
    Line("#8C3B00", "#F5B183", "longdash", "y-up"),
)
_OWN_SLACK = "the design reserves more than it has filled, or keeps a view of a longer tensor"


def own_design(path: Path, number: int = 0) -> Design:
    """The design that a user's file describes, without running it. Raises KvvizError."""
    return _own(path.stem, own_designs.read(path), number)


def _own(name: str, fields: Mapping[str, Any], number: int) -> Design:
    line = _OWN_LINES[number % len(_OWN_LINES)]
    advice = f"`kvviz check-cache {name}.py` says why, or leave it out"
    return Design(name=name, line=line, own=True, slack=_OWN_SLACK, advice=advice, **fields)


_TABLE = tomllib.loads(Path(__file__).with_name("designs.toml").read_text(encoding="utf-8"))
_BUILT_IN = {name: _row(name, fields) for name, fields in _TABLE.items()}
# The names of the modes that are no design of ours (`kvviz.decoding.modes`).
OTHER_MODES = (
    *("uncached", "cached", "unpassed", "scratch", "fused", "compiled", "lookup", "speculative"),
    *("static", "quantized", "endpoint"),
)
TAKEN = (*OTHER_MODES, *_BUILT_IN)
_FOUND = own_designs.find(own_designs.folder(), TAKEN)
LEFT_OUT = _FOUND.left_out  # files of the folder that are no design, with the reason
_OWN = {name: _own(name, fields, number) for number, (name, fields) in enumerate(_FOUND.designs.items())}
DESIGNS: Mapping[str, Design] = _BUILT_IN | _OWN


def unloadable() -> dict[str, str]:
    """The users' designs that can't be loaded, with the reason; this runs their files."""
    found = dict[str, str]()
    for design in _OWN.values():
        try:
            design.implementation()
        except KvvizError as error:
            found[design.name] = str(error)
    return found
