"""Draws an engine's blocks, as its KV events told of them, as HTML: a square is a block, a row is what follows it."""

import html
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from kvviz.charts import palette
from kvviz.charts.layout import blank

Told = Mapping[str, Any]  # what the events told (docs/json.md)
DEEPEST = 40  # blocks that a row is moved to the right by
_STATES = {
    "there": "lies on the GPU",
    "other": "lies elsewhere",
    "removed": "was removed",
    "unseen": "no event named the block before it",
}
KEY = "".join(f'<span><i class="kvb-{state}"></i>{words}</span>' for state, words in _STATES.items())
_COLOURS = f"light-dark({palette.KEPT}, #56B4E9)", f"light-dark({palette.FREE}, #A9B7C4)"
STYLE = (
    f"<style>\n{Path(__file__).with_suffix('.css').read_text(encoding='utf-8')}"
    f":is(.kvb, .kvb-key) {{ --kvb-there: {_COLOURS[0]}; --kvb-gone: {_COLOURS[1]}; }}\n</style>"
)


def block_map(told: Told) -> str:
    """Draw the trees of prefixes: what follows a block stands in its row, or below and further in where two do."""
    trees, rows = list[str](), list[str]()
    for chain in told["chains"]:
        if not chain["depth"] and rows:
            trees.append("".join(rows))
            rows = []
        rows.append(_chain(chain))
    trees += ["".join(rows)] if rows else []
    drawn = "".join(f'<div class="kvb-tree">{tree}</div>' for tree in trees)
    label = 'tabindex="0" role="group" aria-label="The blocks of the cache"'
    more = f"<p>{told['not_drawn']:,} more blocks are not drawn.</p>" if told["not_drawn"] else ""
    return f'{STYLE}<div class="kvb-key">{KEY}</div><div class="kvb" {label}>{drawn}</div>{more}'


def _chain(chain: Told) -> str:
    columns = zip(chain["hashes"], chain["tokens"], chain["stored_s"], chain["removed_s"], strict=True)
    there = sum(gone is None for gone in chain["removed_s"])
    unseen = "" if chain["seen"] else '<i class="kvb-unseen"></i>'
    cells = "".join(_cell(chain["medium"], *block) for block in columns)
    tokens = sum(n for n, gone in zip(chain["tokens"], chain["removed_s"], strict=True) if gone is None)
    said = f"{tokens:,} tokens" if there else "gone"
    depth = f"--kvb-depth:{min(chain['depth'], DEEPEST)}"
    return (
        f'<div class="kvb-chain" style="{depth}"><div class="kvb-cells">{unseen}{cells}</div><span>{said}</span></div>'
    )


def _cell(medium: str | None, name: str, tokens: int, stored: float, removed: float | None) -> str:
    state = "removed" if removed is not None else "there" if medium in (None, "GPU") else "other"
    gone = "" if removed is None else f", removed at {removed:.3g} s"
    where = f" in {medium}" if medium else ""
    words = html.escape(f"block {name}: {tokens} tokens{where}, stored at {stored:.3g} s{gone}")
    return f'<i class="kvb-{state}" title="{words}"></i>'


def blocks_over_time(told: Told) -> go.Figure:
    """Draw how many blocks lay in the cache after each batch of events."""
    figure = blank("seconds since the first batch, by the engine's clock", "blocks in the cache", height=260)
    look = {"color": palette.KEPT, "width": 2.5, "shape": "hv"}
    figure.add_scatter(x=told["curve_s"], y=told["curve_blocks"], mode="lines", line=look, showlegend=False)
    return figure


def claim_of_blocks(told: Told) -> str:
    """Say what became of the blocks."""
    most, last = max(told["curve_blocks"], default=0), told["blocks"]
    kept = "all of them stay" if most == last else f"{last:,} are left"
    size = told["block_tokens"]
    each = f" of {size[0]} tokens" if len(size) == 1 else ""
    return f"The engine's prefix cache grew to {most:,} blocks{each}, and {kept}"
