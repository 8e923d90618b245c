"""Draws the figures of the memory calculator. Byte units are powers of 1024."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from kvviz.base.words import human
from kvviz.charts import palette
from kvviz.charts.layout import LEGEND
from kvviz.charts.text import as_text
from kvviz.memory.explain import KIND_WORDS
from kvviz.memory.formula import Memory

_UNITS = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))

Line = tuple[str, Sequence[int], Sequence[int]]


def unit_for(most: float) -> tuple[str, int]:
    """Choose the unit that leaves the largest value at least one digit before the point, and its bytes."""
    return next(((name, size) for name, size in _UNITS if most >= size), _UNITS[-1])


def context_figure(lines: Sequence[Line], at: int, *, log: bool = False) -> go.Figure:
    """Draw bytes against tokens: (name, tokens, bytes) for each model, with a mark at the chosen number of tokens."""
    unit, size = unit_for(max((max(ys) for _, _, ys in lines), default=1))
    axis = "log" if log else "linear"
    layout = _layout(f"KV cache, {unit}", "tokens in the cache")
    layout["xaxis"]["type"] = layout["yaxis"]["type"] = axis
    chosen = _upright(at, {"dash": "dot", "width": 1.5, "color": "#888888"})
    return go.Figure(
        [_line(name, xs, ys, size, i) for i, (name, xs, ys) in enumerate(lines)],
        {**layout, "hovermode": "x unified", "shapes": [chosen]},
    )


def _upright(x: float, line: Mapping[str, object]) -> dict[str, object]:
    """A vertical line shape over the whole height of the chart."""
    return {"type": "line", "x0": x, "x1": x, "xref": "x", "y0": 0, "y1": 1, "yref": "y domain", "line": line}


def _line(name: str, xs: Sequence[int], ys: Sequence[int], size: int, number: int) -> go.Scatter:
    colour = palette.SERIES[number % len(palette.SERIES)]
    return go.Scatter(
        x=list(xs),
        y=[y / size for y in ys],
        name=as_text(name),
        mode="lines",
        line={"color": colour, "width": 2.5, "dash": palette.SERIES_DASH[number % len(palette.SERIES_DASH)]},
        text=[f"{human(y)} ({y:,} B)" for y in ys],
        hovertemplate="%{text}",
    )


def layer_figure(memory: Memory) -> go.Figure:
    """Draw the bytes of each layer, coloured by kind, with recurrent states stacked on keys and values."""
    unit, size = unit_for(max((row.nbytes for row in memory.layers), default=1))
    bars = []
    for kind in dict.fromkeys(row.kind for row in memory.layers):
        rows = [row for row in memory.layers if row.kind == kind]
        plain = [row.nbytes - row.state_bytes for row in rows]
        if any(plain) or not any(row.state_bytes for row in rows):
            bars.append(_bars([r.index for r in rows], plain, size, f"K and V: {KIND_WORDS[kind]}", kind))
        if any(row.state_bytes for row in rows):
            states = [row.state_bytes for row in rows]
            bars.append(_bars([r.index for r in rows], states, size, f"state: {KIND_WORDS[kind]}", "state"))
    return go.Figure(bars, {**_layout(unit, "layer"), "barmode": "stack", "bargap": 0.15})


def _bars(x: Sequence[int], values: Sequence[int], size: int, name: str, colour: str) -> go.Bar:
    text = [f"layer {i}: {value:,} B" for i, value in zip(x, values, strict=True)]
    return go.Bar(
        x=list(x),
        y=[value / size for value in values],
        name=name,
        marker_color=palette.KINDS[colour],
        hovertext=text,
        hoverinfo="text+name",
    )


def batch_figure(cache: Mapping[int, int], weights: int | None) -> go.Figure:
    """Draw bytes against batch size: the cache (bytes by number of sequences) stacked on one copy of the weights."""
    unit, size = unit_for(max(cache.values(), default=1) + (weights or 0))
    x = [str(count) for count in cache]
    bars = [_stack(x, [weights] * len(x), size, "weights", "weights")] if weights else []
    bars.append(_stack(x, list(cache.values()), size, "KV cache", "full"))
    layout = _layout(unit, "sequences at once")
    layout["xaxis"]["type"] = "category"
    return go.Figure(bars, {**layout, "barmode": "stack"})


def _stack(x: Sequence[str], values: Sequence[int], size: int, name: str, colour: str) -> go.Bar:
    return go.Bar(
        x=list(x),
        y=[value / size for value in values],
        name=name,
        marker_color=palette.KINDS[colour],
        hovertext=[f"{name}: {human(value)}" for value in values],
        hoverinfo="text",
    )


def fit_figure(parts: Mapping[str, int], capacity: int, title: str) -> go.Figure:
    """Draw one bar of the bytes that an accelerator's memory must hold, against its capacity."""
    unit, size = unit_for(max(capacity, sum(parts.values())))
    bars = [
        go.Bar(
            y=[""],
            x=[value / size],
            name=name,
            orientation="h",
            marker_color=palette.KINDS[_PART_COLOUR[name]],
            hovertext=f"{name}: {human(value)} ({value:,} B)",
            hoverinfo="text",
        )
        for name, value in parts.items()
    ]
    there_is = _upright(capacity / size, {"width": 3, "color": "#777777"})
    label = {"text": title, "showarrow": False, "x": capacity / size, "xref": "x", "xanchor": "right"}
    label |= {"y": 1, "yref": "paper", "yanchor": "bottom"}
    layout = {**_layout("", unit), "height": 210, "barmode": "stack", "shapes": [there_is], "annotations": [label]}
    return go.Figure(bars, layout)


_PART_COLOUR = {"weights": "weights", "KV cache": "full", "prefill activations (estimate)": "activations"}


def _layout(y: str, x: str) -> dict:
    return {
        "font": {"size": 14},
        "legend": LEGEND,
        "xaxis": {"title": {"text": x}},
        "yaxis": {"title": {"text": y}, "rangemode": "tozero"},
        "margin": {"t": 30, "r": 20, "l": 10, "b": 10},
        "height": 400,
    }
