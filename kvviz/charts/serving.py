"""Draws many requests that share a memory: running sequences, waste, the memory map, and cold against warm starts."""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from kvviz.caches.block_table import BLOCK
from kvviz.charts import palette
from kvviz.charts.layout import LEGEND

WAYS = {  # colour, dash and short name of each allocation policy
    "reserved": ("#D55E00", "dash", "reserved"),
    "growing": ("#B8860B", "dot", "grown"),
    "paged": ("#0072B2", "solid", "blocks"),
    "prefix": ("#00916E", "dashdot", "shared blocks"),
}
PARTS = {"used": ("tokens", "#0072B2"), "internal": ("wasted inside", "#E69F00"), "external": ("between", "#9A4B7D")}
COLD, WARM, KEPT = "#D55E00", "#0072B2", "#8A94A0"
FREE, FINDABLE, SHARED = "rgba(128,128,128,0.13)", "rgba(0,145,110,0.35)", "#3B4652"
OWNERS = tuple(palette.SERIES[i] for i in (0, 1, 3, 4))  # the other hues are too close to the colours above
Found = Mapping[str, Any]


def counts_figure(ways: Sequence[Found], name: str, words: str, tick: int | None = None) -> go.Figure:
    """Draw a step chart of the running or waiting sequences at each tick, with a line for each policy."""
    figure = go.Figure(layout=_layout(words, 300))
    for way in ways:
        colour, dash, title = WAYS[way["name"]]
        figure.add_trace(
            go.Scatter(
                x=way["ticks"]["tick"],
                y=way["ticks"][name],
                name=title,
                mode="lines",
                line={"color": colour, "dash": dash, "width": 2, "shape": "hv"},
                hovertemplate="%{y}",
            )
        )
    figure.update_layout(hovermode="x unified", xaxis_title="tick")
    if tick is not None:
        figure.add_vline(x=tick, line={"dash": "dot", "color": "#888888", "width": 1.5})
    return figure


def waste_figure(way: Found, slots: int, last: int) -> go.Figure:
    """Draw one policy's memory over time in slots: tokens, internal and external waste, preemptions and evictions.

    `last`: the tick at which the axis ends, the same for every policy.
    """
    ticks = way["ticks"]
    figure = go.Figure(layout=_layout("slots", 260))
    for part, (title, colour) in PARTS.items():
        figure.add_trace(
            go.Scatter(
                x=ticks["tick"],
                y=ticks[part],
                name=title,
                stackgroup="memory",
                mode="lines",
                line={"color": colour, "width": 0.5, "shape": "hv"},
                hovertemplate=f"{title}: %{{y:,}}<extra></extra>",
            )
        )
    marks = (("preempted", "preempted", "triangle-down", "#D55E00"), ("evicted", "block evicted", "x", "#00916E"))
    for height, (part, title, symbol, colour) in zip((1.06, 1.13), marks, strict=True):
        at = [(tick, count) for tick, count in zip(ticks["tick"], ticks[part], strict=True) if count]
        if at:
            figure.add_trace(_marks(at, height * slots, title, symbol, colour))
    figure.add_hline(y=slots, line={"color": "#888888", "width": 1, "dash": "dot"})
    figure.update_layout(xaxis={"title": "tick", "range": [0, last]}, yaxis_range=[0, 1.18 * slots])
    return figure


def _marks(at: Sequence[tuple[int, int]], height: float, title: str, symbol: str, colour: str) -> go.Scatter:
    return go.Scatter(
        x=[tick for tick, _ in at],
        y=[height] * len(at),
        customdata=[count for _, count in at],
        name=title,
        mode="markers",
        marker={"symbol": symbol, "size": 7, "color": colour},
        hovertemplate=f"tick %{{x}}: %{{customdata}} {title}<extra></extra>",
    )


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
    figure = go.Figure(
        go.Heatmap(
            z=[[value for value, _ in row] for row in rows],
            text=[[words for _, words in row] for row in rows],
            hovertemplate="%{text}<extra></extra>",
            hoverongaps=False,
            colorscale=scale,
            zmin=-0.5,
            zmax=last + 0.5,
            showscale=False,
            ygap=2,
        )
    )
    for block, count in counts.items():
        x, y = (block * BLOCK) % width + BLOCK / 2 - 0.5, block * BLOCK // width
        figure.add_annotation(x=x, y=y, text=f"×{count}", showarrow=False, font={"size": 10, "color": "#ffffff"})
    if picture is not None and picture["kind"] == "blocks":
        for edge in range(BLOCK, width, BLOCK):
            figure.add_vline(x=edge - 0.5, line={"color": "#888888", "width": 1})
    figure.update_layout(height=60 + max(160, min(11 * len(rows), 300)), margin={"t": 8, "r": 8, "b": 30, "l": 8})
    figure.update_xaxes(title=f"{width} slots in a row", showticklabels=False, ticks="", showgrid=False, zeroline=False)
    figure.update_yaxes(autorange="reversed", showticklabels=False, ticks="", showgrid=False, zeroline=False)
    return figure


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
    figure = go.Figure(layout=_layout("ms to the first token", 320))
    for name, colour in (("cold", COLD), ("warm", WARM)):
        found = [row[name] for row in rows]
        figure.add_trace(
            go.Bar(
                x=list(names),
                y=[one["ttft_s"] * 1e3 for one in found],
                error_y={
                    "array": [(one["ttft_s_q3"] - one["ttft_s"]) * 1e3 for one in found],
                    "arrayminus": [(one["ttft_s"] - one["ttft_s_q1"]) * 1e3 for one in found],
                    "thickness": 1.5,
                    "color": "#888888",
                },
                name={"cold": "cold: all computed", "warm": "warm: the rest computed"}[name],
                marker={"color": colour, "pattern": {"shape": "/" if name == "cold" else ""}},
                hovertemplate="%{y:.3g} ms",
            )
        )
    figure.update_layout(barmode="group", hovermode="x unified")
    return figure


def tokens_figure(rows: Sequence[Found], names: Sequence[str]) -> go.Figure:
    """Draw each warm prompt's tokens, divided into cached ones and those computed now."""
    figure = go.Figure(layout=_layout("prompt tokens, warm", 320))
    for part, title, colour in (("found", "kept", KEPT), ("computed", "computed", WARM)):
        figure.add_trace(
            go.Bar(
                x=list(names),
                y=[row["warm"][f"{part}_tokens"] for row in rows],
                name=title,
                marker_color=colour,
                hovertemplate="%{y:,}",
            )
        )
    figure.update_layout(barmode="stack", hovermode="x unified")
    return figure


def _layout(y: str, height: int) -> dict[str, Any]:
    return {
        "font": {"size": 14},
        "legend": LEGEND,
        "yaxis": {"title": {"text": y}, "rangemode": "tozero"},
        "margin": {"t": 30, "r": 20, "l": 10, "b": 10},
        "height": height,
    }
