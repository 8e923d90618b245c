"""One row for each cache design: all that kvviz knows of it but its code, which is in its own file. No torch here.

A new design is a class over `KVCache` in a file of its own, a table in `designs.toml` and a rule of its bytes here.
Modes, the default race, the formula, the charts and the tests find it by its row.
"""

import importlib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kvviz.base.precision import Precision
from kvviz.memory.engine_views import BLOCK, token_bytes
from kvviz.models.layers import LayerSpec

if TYPE_CHECKING:
    from kvviz.caches.base import KVCache

SINKS, WINDOW = 4, 60  # tokens that `sinks` keeps; few, so that a short run shows it: the paper has 4 and 1,020
GROUP = 32  # tokens that share a scale in each channel of the keys of `int8` and `int4`, as in the paper
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
    """

    nbytes: ByteRule | None = None
    formula: str = ""
    slack: str = "capacity for tokens to come, or a window that is a view of a longer tensor until the next step"
    less: str = ""
    more: str = ""
    elsewhere: str = ""
    beside: str = ""
    slow: str = ""

    def takes(self, window: int | None) -> bool:
        """Whether a layer with this window is kept by `nbytes`; None is a layer without one."""
        return True


@dataclass(frozen=True, kw_only=True)
class Design(Account):
    """One cache design. `exact`: attention gets the very numbers that were appended. `source` names where it is from.

    `cls` is "module:class". `windows` says what a layer with a window of its own gets: `own`, this design; `ring`, a
    ring of the window; `theirs`, transformers' own layer. Layers with windows of up to `least` tokens are transformers'
    in any case.
    """

    name: str
    title: str
    summary: str
    exact: bool = True
    cls: str
    source: str
    line: Line
    windows: str = "own"
    least: int = 0
    accelerator: bool = False  # needs a device with memory of its own, so it is not in the default race
    reads: bool = False  # needs the ids of the tokens that come
    work: str = ""  # how the cost model counts its step (`kvviz.cost.predict`); "" if it makes no prediction

    def takes(self, window: int | None) -> bool:
        return window is None or (self.windows != "theirs" and window > self.least)

    def new(self, *, window: int | None = None, capacity: int | None = None) -> "KVCache":
        """An empty cache for one layer and for sequences of up to `capacity` tokens, where that is known."""
        cls = "kvviz.caches.ring:Ring" if window is not None and self.windows == "ring" else self.cls
        module, _, name = cls.partition(":")
        return getattr(importlib.import_module(module), name)(window=window, capacity=capacity)


# --- what they keep --------------------------------------------------------------------------------------------------


def _behind(n: int, window: int | None) -> int:
    """Tokens at the front that no future token can attend to: after 10 tokens a window of 4 has moved past 7."""
    return 0 if window is None else max(0, n - window + 1)


def _tokens(held: Callable[[int, int | None], int]) -> ByteRule:
    """Tokens held, as a function of the tokens seen and the window, x the bytes of a token."""
    return lambda layer, n, element: held(n, layer.window) * token_bytes(layer, element)


EVERY_TOKEN = _tokens(lambda n, window: n - _behind(n, window))
RING = _tokens(lambda n, window: n if window is None else min(n, window))
_BLOCKS = _tokens(lambda n, window: n - _behind(n, window) // BLOCK * BLOCK)  # a window drops whole blocks
_SINKS = _tokens(lambda n, window: min(n, SINKS + WINDOW))


def _codes(bits: int) -> ByteRule:
    """Groups of codes with their scales, and the newest tokens in full precision.

    A scale and a zero have 2 bytes each: for each channel of a group of keys, and for each token of values.
    """

    def count(layer: LayerSpec, n: int, element: Precision) -> int:
        groups = max(0, (n - RESIDUAL) // GROUP)
        newest = n - groups * GROUP
        groups -= min(groups, _behind(n, layer.window) // GROUP)
        codes = groups * GROUP * (layer.key_dim + layer.value_dim) * bits // 8
        scales = 4 * groups * (layer.key_dim + GROUP)
        return layer.kv_heads * (codes + scales) + newest * token_bytes(layer, element)

    return count


_RULES: dict[str, ByteRule] = {
    "concat": EVERY_TOKEN,
    "prealloc": RING,
    "paged": _BLOCKS,
    "prefix": _BLOCKS,
    "sinks": _SINKS,
    "int8": _codes(8),
    "int4": _codes(4),
    "offloaded": EVERY_TOKEN,
}

# --- the rows --------------------------------------------------------------------------------------------------------

_SIZES = {"BLOCK": BLOCK, "SPARE": BLOCK - 1, "SINKS": SINKS, "WINDOW": WINDOW}
_SIZES |= {"GROUP": GROUP, "RESIDUAL": RESIDUAL, "NEWEST": RESIDUAL + GROUP - 1}


def _row(name: str, fields: Mapping[str, Any]) -> Design:
    """A design from its table in designs.toml."""
    filled: dict[str, Any] = {k: v.format(**_SIZES) if isinstance(v, str) else v for k, v in fields.items()}
    filled["line"] = Line(*fields["line"])
    return Design(name=name, nbytes=_RULES[name], **filled)


_TABLE = tomllib.loads(Path(__file__).with_name("designs.toml").read_text(encoding="utf-8"))
DESIGNS: Mapping[str, Design] = {name: _row(name, fields) for name, fields in _TABLE.items()}
