"""The designs by name: what each is called, where it is written, what of its slowness is its own. No torch here."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvviz.base.errors import KvvizError

if TYPE_CHECKING:
    from kvviz.caches.base import KVCache

PAGED = "https://arxiv.org/abs/2309.06180"


@dataclass(frozen=True)
class Design:
    """One way of keeping keys and values. `exact`: attention gets what was appended.

    `windows` says what a layer with a window of its own gets: `own`, the design itself; `ring`, a ring of the window;
    `theirs`, transformers' own layer, the design being for layers that look at everything. Windows up to `least` are
    theirs in any case. `slow` says what takes time and whether that is the design or our simple way of doing it.
    """

    name: str
    title: str
    summary: str
    exact: bool
    where: str
    source: str
    slow: str
    windows: str = "own"
    least: int = 0
    accelerator: bool = False  # of use only beside a device with memory of its own
    reads: bool = False  # wants to be told which tokens come

    def takes(self, window: int | None) -> bool:
        """Whether a layer with this window (None: without one) is kept by this design."""
        return window is None or (self.windows != "theirs" and window > self.least)

    def new(self, *, window: int | None = None, room: int | None = None) -> "KVCache":
        """An empty cache for one layer; `room` is the tokens of each sequence that it is for, where that is known."""
        if window is not None and self.windows == "ring":
            return _class("kvviz.caches.ring:Ring")(window=window, room=room)
        if self.where.endswith(":Sinks"):
            return _class(self.where)(room=room)
        return _class(self.where)(window=window, room=room)


def _class(where: str) -> type:
    module, name = where.split(":")
    return getattr(importlib.import_module(module), name)


_ROWS = (
    Design(
        name="concat",
        title="Joined anew",
        summary="joins new keys and values on to the old in a new tensor: each step copies the whole cache",
        exact=True,
        where="kvviz.caches.concat:Concat",
        source="https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/cache_utils.py",
        slow="Each step copies all tokens so far: that is the design.",
    ),
    Design(
        name="prealloc",
        title="Reserved at once",
        summary="one buffer for the longest text; a new token goes into the next free slot, nothing moves",
        exact=True,
        where="kvviz.caches.prealloc:Prealloc",
        source="https://github.com/pytorch-labs/gpt-fast/blob/main/model.py",
        slow="Nothing is copied but the new token; the memory of tokens that never come is the price.",
        windows="ring",
    ),
    Design(
        name="paged",
        title="Paged",
        summary="blocks of 16 tokens and a table of them for each sequence; at most 15 slots of each are empty",
        exact=True,
        where="kvviz.caches.paged:Paged",
        source=PAGED,
        slow="Each step gathers all blocks into one tensor: our simple way; a paged kernel reads them in place.",
    ),
    Design(
        name="prefix",
        title="Shared beginnings",
        summary="paged, and blocks with the same tokens behind the same beginning are kept once for all sequences",
        exact=True,
        where="kvviz.caches.prefix:Prefix",
        source="https://docs.vllm.ai/en/latest/design/prefix_caching.html",
        slow="As paged: the gather is our simple way. Telling it the tokens' ids waits for the device at each step.",
        reads=True,
    ),
    Design(
        name="sinks",
        title="Window with sinks",
        summary="keeps the first 4 and the newest 60 tokens, and lets go of all between: constant memory, lossy",
        exact=False,
        where="kvviz.caches.ring:Sinks",
        source="https://arxiv.org/abs/2309.17453",
        slow="Nothing is copied but the new token.",
        windows="theirs",
    ),
    Design(
        name="int8",
        title="8 bits",
        summary="older keys and values as 8-bit numbers with scales, the newest 32 tokens and more as they came: lossy",
        exact=False,
        where="kvviz.caches.quantized:Int8",
        source="https://arxiv.org/abs/2402.02750",
        slow="Each step makes numbers of all codes: that is our simple way; a kernel does it where it multiplies.",
        least=64,
    ),
    Design(
        name="int4",
        title="4 bits",
        summary="the same with 4 bits, two numbers in a byte: lossy",
        exact=False,
        where="kvviz.caches.quantized:Int4",
        source="https://arxiv.org/abs/2402.02750",
        slow="Each step makes numbers of all codes: that is our simple way; a kernel does it where it multiplies.",
        least=64,
    ),
    Design(
        name="offloaded",
        title="In host memory",
        summary="keys and values lie in the host's memory and are fetched to the device layer by layer at each step",
        exact=True,
        where="kvviz.caches.offloaded:Offloaded",
        source="https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/cache_utils.py",
        slow="The bus between host and device: that is the design; that ours waits for each layer is our simple way.",
        windows="theirs",
        accelerator=True,
    ),
)
DESIGNS: Mapping[str, Design] = {row.name: row for row in _ROWS}


def design_named(name: str) -> Design:
    """The row of a design. Raises KvvizError listing the names where there is none."""
    if name not in DESIGNS:
        raise KvvizError(f"no cache design {name!r}; the designs are {', '.join(DESIGNS)}")
    return DESIGNS[name]
