"""Draws many requests that share a memory: running sequences, waste, the memory map, and cold against warm starts."""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from kvviz.caches.block_table import BLOCK
from kvviz.charts import palette
from kvviz.charts.layout import MARGIN, blank

WAYS = {  # colour, dash and short name of each allocation policy
    "reserved": ("#D55E00", "dash", "reserved"),
    "growing": ("#B8860B", "dot", "grown"),
    "paged": ("#0072B2", "solid", "blocks"),
    "prefix": ("#00916E", "dashdot", "shared blocks"),
    "batched": ("#4B5563", "solid", "static batches"),
}
PARTS = {
    "used": ("tokens", palette.KEPT),
    "internal": ("wasted inside", palette.WASTED),
    "external": ("wasted between", "#B8860B"),
}
FREE, FINDABLE, SHARED = "rgba(128,128,128,0.13)", "rgba(0,145,110,0.35)", "#3B4652"
OWNERS = tuple(palette.SERIES[i] for i in (0, 1, 3, 4))  # the other hues are too close to the colours above
Found = Mapping[str, Any]


def counts_figure(ways: Sequence[Found], name: str) -> go.Figure:
    """Draw a step chart of the running or waiting sequences at each tick, with a line for each policy."""
    figure = _blank("sequences", 300, "tick")
    for way in ways:
        colour, dash, title = WAYS[way["name"]]
        look = {"name": title, "mode": "lines", "hovertemplate": "%{y}"}
        line = {"color": colour, "dash": dash, "width": 2, "shape": "hv"}
        figure.add_scatter(x=way["ticks"]["tick"], y=way["ticks"][name], line=line, **look)
    return figure


def waste_figure(way: Found, slots: int, last: int) -> go.Figure:
    """Draw one policy's memory over time in slots: tokens, internal and external waste, preemptions and evictions.

    `last`: the tick at which the axis ends, the same for every policy.
    """
    ticks = way["ticks"]
    figure = _blank("slots", 260, "tick", hovermode=None, xaxis_range=[0, last], yaxis_range=[0, 1.18 * slots])
    for part, (title, colour) in PARTS.items():
        line, words = {"color": colour, "width": 0.5, "shape": "hv"}, f"{title}: %{{y:,}}<extra></extra>"
        look = {"name": title, "stackgroup": "memory", "mode": "lines", "line": line, "hovertemplate": words}
        figure.add_scatter(x=ticks["tick"], y=ticks[part], **look)
    marks = (
        ("preempted", "preempted", "triangle-down", palette.AGAIN),
        ("evicted", "block evicted", "x", palette.GIVEN_UP),
    )
    for height, (part, title, symbol, colour) in zip((1.06, 1.13), marks, strict=True):
        at = [(tick, count) for tick, count in zip(ticks["tick"], ticks[part], strict=True) if count]
        if at:
            x, counts = zip(*at, strict=True)
            look = {"name": title, "mode": "markers", "marker": {"symbol": symbol, "size": 7, "color": colour}}
            words = f"tick %{{x}}: %{{customdata}} {title}<extra></extra>"
            figure.add_scatter(x=x, y=[height * slots] * len(at), customdata=counts, hovertemplate=words, **look)
    all_of_it = {"text": f"all {slots:,} slots", "xanchor": "left", "x": 0, "yanchor": "bottom", "font_size": 12}
    return figure.add_hline(y=slots, line={"color": "#888888", "width": 1, "dash": "dot"}, annotation=all_of_it)


def map_figure(picture: Found | None, slots: int) -> go.Figure:
    """Draw the memory slot by slot in rows; `picture` is None once the policy has finished its requests."""
    cells, counts = _cells(picture, slots)
    width = 128 if slots >= 1024 else 64
    rows = [cells[start : start + width] for start in range(0, slots, width)]
    pad = [[None, ""]] * (width - len(rows[-1]))
    rows[-1] = [*rows[-1], *pad]
    shades = [FREE, FINDABLE, SHARED, *(shade for colour in OWNERS for shade in (colour, _pale(colour)))]
    last = len(shades) - 1
    scale = [(edge, shade) for i, shade in enumerate(shades) for edge in (i / (last + 1), (i + 1) / (last + 1))]
    z, text = ([[cell[i] for cell in row] for row in rows] for i in (0, 1))
    look = {"colorscale": scale, "zmin": -0.5, "zmax": last + 0.5, "showscale": False, "ygap": 2, "hoverongaps": False}
    figure = go.Figure(go.Heatmap(z=z, text=text, hovertemplate="%{text}<extra></extra>", **look))
    for block, count in counts.items():
        x, y = (block * BLOCK) % width + BLOCK / 2 - 0.5, block * BLOCK // width
        figure.add_annotation(x=x, y=y, text=f"×{count}", showarrow=False, font={"size": 10, "color": "#ffffff"})
    if picture is not None and picture["kind"] == "blocks":
        for edge in range(BLOCK, width, BLOCK):
            figure.add_vline(x=edge - 0.5, line={"color": "#888888", "width": 1})
    figure.update_layout(height=60 + max(160, min(11 * len(rows), 300)), margin={"t": 8, "r": 8, "b": 30, "l": 8})
    plain = {"showticklabels": False, "ticks": "", "showgrid": False, "zeroline": False}
    return figure.update_xaxes(title=f"{width} slots in a row", **plain).update_yaxes(autorange="reversed", **plain)


def _cells(picture: Found | None, slots: int) -> tuple[list[list[Any]], dict[int, int]]:
    """(shade and label of each slot, number of owners of each shared block)."""
    cells: list[list[Any]] = [[0, f"slot {slot}: free"] for slot in range(slots)]
    if picture is None:
        return cells, {}
    if picture["kind"] == "regions":
        for owner, start, length, tokens in picture["regions"]:
            for slot in range(start, start + length):
                cells[slot] = _owned(owner, slot - start < tokens, f"{tokens} tokens in a region of {length}")
        return cells, {}
    block, owners = picture["block"], _owners(picture)
    for number in picture["findable"]:
        for slot in range(number * block, (number + 1) * block):
            cells[slot] = [1, f"block {number}: free, and the same prefix would hit it again"]
    for number, (names, filled) in owners.items():
        for place in range(block):
            words = f"block {number}, {filled} of {block} slots filled"
            if len(names) > 1:
                cells[number * block + place] = [2, f"{words}, shared by requests {', '.join(map(str, names))}"]
            else:
                cells[number * block + place] = _owned(names[0], place < filled, words)
    return cells, {number: len(names) for number, (names, _) in owners.items() if len(names) > 1}


def _owners(picture: Found) -> dict[int, tuple[list[int], int]]:
    """Map each block in use to its owners and the number of its filled slots."""
    found: dict[int, tuple[list[int], int]] = {}
    for owner, blocks, tokens in picture["tables"]:
        for place, block in enumerate(blocks):
            names, filled = found.get(block, ([], 0))
            found[block] = [*names, owner], max(filled, min(picture["block"], tokens - place * picture["block"]))
    return found


def _owned(owner: int, filled: bool, words: str) -> list[Any]:
    hue = 3 + 2 * (owner % len(OWNERS))
    return [hue, f"request {owner}: {words}"] if filled else [hue + 1, f"empty, request {owner}'s: {words}"]


def _pale(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.3)"


def first_token_figure(rows: Sequence[Found], names: Sequence[str]) -> go.Figure:
    """Draw the TTFT in milliseconds, cold and warm: medians with quartiles."""
    figure = _blank("ms to the first token", 320, barmode="group")
    for name, colour, title in (
        ("cold", palette.AGAIN, "cold: all computed"),
        ("warm", palette.KEPT, "warm: the rest computed"),
    ):
        found = [row[name] for row in rows]
        up = [(one["ttft_s_q3"] - one["ttft_s"]) * 1e3 for one in found]
        down = [(one["ttft_s"] - one["ttft_s_q1"]) * 1e3 for one in found]
        bars = {"array": up, "arrayminus": down, "thickness": 1.5, "color": "#888888"}
        marker = {"color": colour, "pattern": {"shape": "/" if name == "cold" else ""}}
        look = {"name": title, "marker": marker, "hovertemplate": "%{y:.3g} ms"}
        figure.add_bar(x=list(names), y=[one["ttft_s"] * 1e3 for one in found], error_y=bars, **look)
    return figure


def tokens_figure(rows: Sequence[Found], names: Sequence[str]) -> go.Figure:
    """Draw each warm prompt's tokens, divided into cached ones and those computed now."""
    figure = _blank("prompt tokens, warm", 320, barmode="stack")
    for part, title, colour in (("found", "kept", palette.KEPT), ("computed", "computed", palette.NEW)):
        y = [row["warm"][f"{part}_tokens"] for row in rows]
        figure.add_bar(x=list(names), y=y, name=title, marker_color=colour, hovertemplate="%{y:,}")
    return figure


def _blank(y: str, height: int, x: str | None = None, **more: Any) -> go.Figure:
    usual = {"height": height, "hovermode": "x unified", "margin": {**MARGIN, "r": 20}}
    return blank(x, y, **{**usual, **more})
