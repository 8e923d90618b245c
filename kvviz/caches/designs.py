"""One row for each cache design: all that kvviz knows of it but its code, which is in its own file. No torch here.

A new design is a class over `KVCache` in a file of its own and a row here. Modes, the default race, the formula, the
charts and the tests find it by its row.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

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
    be smaller than the formula, `elsewhere` where they lie if not in the device's memory. `slow` says what takes time,
    and whether that is the design or our simple code.
    """

    nbytes: ByteRule | None = None
    formula: str = ""
    slack: str = "capacity for tokens to come, or a window that is a view of a longer tensor until the next step"
    less: str = ""
    elsewhere: str = ""
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


def _quantised(bits: int, summary: str, width: str, line: Line) -> Design:
    """The row of `int8` or `int4`, which differ in the width of a code alone."""
    return Design(
        name=f"int{bits}",
        title=f"{bits} bits",
        summary=summary,
        exact=False,
        cls=f"kvviz.caches.quantized:Int{bits}",
        source="https://arxiv.org/abs/2402.02750",
        nbytes=_codes(bits),
        formula=f"groups of {GROUP} tokens at {width} a number, with 4 bytes of scale and zero for each channel of a "
        f"group of keys and for each token of values; the newest {RESIDUAL} to {RESIDUAL + GROUP - 1} tokens in full "
        "precision",
        slack="the newest tokens lie in a longer tensor until the next step",
        slow="Each step turns all codes into numbers: our simple code; a kernel does it where it multiplies.",
        line=line,
        least=GROUP + RESIDUAL,
    )


_TRANSFORMERS = "https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/cache_utils.py"

# --- the rows --------------------------------------------------------------------------------------------------------

_ROWS = (
    Design(
        name="concat",
        title="Joined anew",
        summary="joins new keys and values to the old ones in a new tensor: each step copies the whole cache",
        cls="kvviz.caches.concat:Concat",
        source=_TRANSFORMERS,
        nbytes=EVERY_TOKEN,
        slack="a window is a view of a longer tensor until the next step",
        slow="Each step copies all tokens so far: that is the design.",
        line=Line("#9C5518", "#E0A36A", "dashdot", "x"),
        work="joined",
    ),
    Design(
        name="prealloc",
        title="Reserved at once",
        summary="one buffer for the longest text; a new token goes into the next free slot, nothing moves",
        cls="kvviz.caches.prealloc:Prealloc",
        source="https://github.com/pytorch-labs/gpt-fast/blob/main/model.py",
        nbytes=RING,
        slack="the buffer has room for all tokens of the run from the start, and a window's for a whole window",
        slow="Nothing is copied but the new token; the memory of tokens that never come is the price.",
        line=Line("#1B7837", "#7CCB8F", "longdash", "triangle-down"),
        windows="ring",
    ),
    Design(
        name="paged",
        title="Paged",
        summary=f"blocks of {BLOCK} tokens and a table of them for each sequence; at most {BLOCK - 1} slots are empty",
        cls="kvviz.caches.paged:Paged",
        source="https://arxiv.org/abs/2309.06180",
        nbytes=_BLOCKS,
        slack="the last block of each sequence is not full, and blocks that were given back are kept for the next",
        slow="Each step gathers all blocks into one tensor: our simple code; a paged kernel reads them in place.",
        line=Line("#117A8B", "#5CC8D8", "solid", "hexagon"),
    ),
    Design(
        name="prefix",
        title="Shared prefixes",
        summary="paged, and blocks with the same tokens after the same prefix are kept once for all sequences",
        cls="kvviz.caches.paged:Prefix",
        source="https://docs.vllm.ai/en/latest/design/prefix_caching.html",
        nbytes=_BLOCKS,
        slack="the last block of each sequence is not full, and free blocks are kept for the next text with their "
        "prefix",
        less="Shared blocks are kept once: the formula, which counts each sequence,",
        slow="As paged: the gather is our simple code. Reading the tokens' ids waits for the device at each step.",
        line=Line("#4053D3", "#9AA6FF", "dash", "star"),
        reads=True,
    ),
    Design(
        name="sinks",
        title="Window with sinks",
        summary=f"keeps the first {SINKS} and the newest {WINDOW} tokens and drops all between: constant memory, lossy",
        exact=False,
        cls="kvviz.caches.ring:Sinks",
        source="https://arxiv.org/abs/2309.17453",
        nbytes=_SINKS,
        formula=f"layers × sequences × KV heads × min(tokens, {SINKS} + {WINDOW}) × (K dim + V dim) × bytes",
        slack="the ring is allocated at once for all its tokens",
        slow="Nothing is copied but the new token.",
        line=Line("#B51D14", "#FF8A80", "dot", "triangle-left"),
        windows="theirs",
    ),
    _quantised(
        8,
        f"older keys and values as 8-bit codes with scales, at least the newest {RESIDUAL} tokens in full: lossy",
        "1 byte",
        Line("#6F4C9B", "#BFA3E6", "longdashdot", "triangle-right"),
    ),
    _quantised(
        4,
        "the same with 4 bits, two codes in a byte: lossy",
        "half a byte",
        Line("#B0328F", "#F58FD8", "dashdot", "pentagon"),
    ),
    Design(
        name="offloaded",
        title="In host memory",
        summary="keys and values lie in the host's memory and are fetched to the device layer by layer at each step",
        cls="kvviz.caches.prealloc:Offloaded",
        source=_TRANSFORMERS,
        nbytes=EVERY_TOKEN,
        slack="the buffer in the host's memory has room for all tokens of the run from the start",
        elsewhere="the host's memory",
        slow="The bus between host and device: that is the design; that ours waits for each layer is our simple code.",
        line=Line("#4B5563", "#AEB8C4", "longdash", "cross"),
        windows="theirs",
        accelerator=True,
    ),
)
DESIGNS: Mapping[str, Design] = {row.name: row for row in _ROWS}
