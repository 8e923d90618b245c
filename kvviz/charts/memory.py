"""Draws the figures of the memory calculator. Byte units are powers of 1024."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from kvviz.base.words import human, human_range
from kvviz.charts import palette
from kvviz.charts.layout import DOTTED, MARGIN, as_text, blank, name_ends
from kvviz.memory.explain import KIND_WORDS
from kvviz.memory.formula import Memory

_UNITS = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))

Line = tuple[str, Sequence[int], Sequence[int], int | None]


def unit_for(most: float) -> tuple[str, int]:
    """Choose the unit that leaves the largest value at least one digit before the point, and its bytes."""
    return next(((name, size) for name, size in _UNITS if most >= size), _UNITS[-1])


def context_figure(lines: Sequence[Line], at: int, *, log: bool = False) -> go.Figure:
    """Draw bytes against tokens: (name, tokens, bytes, limit) for each model, and a mark at the chosen tokens.

    Beyond its limit, the longest context that a model was made for, a line is dashed, and its name says the limit.
    """
    unit, size = unit_for(max((max(ys) for _, _, ys, _ in lines), default=1))
    axis = "log" if log else "linear"
    figure = _blank("tokens in the cache", f"KV cache, {unit}", height=340, hovermode="x unified")
    for number, (name, xs, ys, limit) in enumerate(lines):
        words = {"text": [f"{human(y)} ({y:,} B)" for y in ys], "hovertemplate": "%{text}"}
        x, y, made_for = list(xs), [y / size for y in ys], f"<br>made for {limit:,}" if limit else ""
        look = {"name": as_text(name) + made_for, "mode": "lines"}
        line = {**palette.series_line(number), "dash": "solid"}  # each has its name at its end
        if limit:
            within = bisect_right(x, limit)
            figure.add_scatter(x=x[:within], y=y[:within], line=line, **look, showlegend=False, hoverinfo="skip")
            line = {**line, "dash": "dash", "width": 1.5}
        figure.add_scatter(x=x, y=y, line=line, **look, **words)
    chosen = {"text": f"{at:,} tokens", "textangle": 0, "xanchor": "right", "yanchor": "top", "y": 0.98}
    figure.update_layout(xaxis_type=axis, yaxis_type=axis)
    figure.add_vline(x=at, line=DOTTED, annotation=chosen)
    return name_ends(figure)


def _blank(x: str, y: str, **more: Any) -> go.Figure:
    return blank(x, y, **{"height": 400, "margin": {**MARGIN, "r": 20}, **more})


def layer_figure(memory: Memory) -> go.Figure:
    """Draw the bytes of each layer, coloured by kind, with recurrent states stacked on keys and values."""
    unit, size = unit_for(max((row.nbytes for row in memory.layers), default=1))
    figure = _blank("layer", unit, barmode="stack", bargap=0.15)
    for kind in dict.fromkeys(row.kind for row in memory.layers):
        rows = [row for row in memory.layers if row.kind == kind]
        plain, states = [row.nbytes - row.state_bytes for row in rows], [row.state_bytes for row in rows]
        parts = [(plain, "K and V", kind)] if any(plain) or not any(states) else []
        parts += [(states, "state", "state")] if any(states) else []
        for values, word, colour in parts:
            text = [f"layer {row.index}: {value:,} B" for row, value in zip(rows, values, strict=True)]
            look = {"marker_color": palette.KINDS[colour], "hovertext": text, "hoverinfo": "text+name"}
            y, name = [value / size for value in values], f"{word}: {KIND_WORDS[kind]}"
            figure.add_bar(x=[row.index for row in rows], y=y, name=name, **look)
    return figure


def batch_figure(cache: Mapping[int, int], weights: int | None) -> go.Figure:
    """Draw bytes against batch size: the cache (bytes by number of sequences) stacked on one copy of the weights."""
    unit, size = unit_for(max(cache.values(), default=1) + (weights or 0))
    figure = _blank("sequences at once", unit, barmode="stack", xaxis_type="category")
    parts = {"weights": [weights] * len(cache)} if weights else {}
    for name, values in {**parts, "KV cache": list(cache.values())}.items():
        words = {"hovertext": [f"{name}: {human(value)}" for value in values], "hoverinfo": "text"}
        x, y = [str(count) for count in cache], [value / size for value in values]
        figure.add_bar(x=x, y=y, name=name, marker_color=palette.KINDS[_PARTS[name]], **words)
    return figure


_PARTS = {"weights": "weights", "KV cache": "full", "activations": "activations", "Captured CUDA graphs": "graphs"}


def card_figure(parts: Sequence[tuple[str, int, int]], capacity: int, budget: int, title: str) -> go.Figure:
    """Draw what one card's memory holds: each part's name, its least and its most bytes, against the capacity.

    What lies between the least and the most is hatched. A second line stands at the `budget` that the engine may use.
    """
    unit, size = unit_for(max(capacity, sum(most for _, _, most in parts)))
    figure = _blank(unit, "", height=250, barmode="stack", legend_y=1.2, margin={**MARGIN, "t": 60})
    words: dict[str, Any]
    for name, least, most in parts:
        span = human_range(least, most) + (f" ({least:,} B)" if least == most else "")
        colour = palette.KINDS[_PARTS.get(name, "overhead")]
        words = {"hovertext": f"{name}: {span}", "hoverinfo": "text", "name": name, "orientation": "h", "y": [""]}
        figure.add_bar(x=[least / size], marker_color=colour, legendgroup=name, **words)
        if most > least:
            hatched = {"color": colour, "pattern": {"shape": "/", "fillmode": "replace", "solidity": 0.35}}
            figure.add_bar(x=[(most - least) / size], marker=hatched, showlegend=False, legendgroup=name, **words)
    lines = [(capacity, title, "left", "solid")]
    lines += [(budget, "the engine may use", "right", "dot")] if budget < capacity else []
    for place, said, anchor, dash in lines:
        label = {"text": said, "textangle": 0, "xanchor": anchor, "yanchor": "bottom", "y": 1}
        figure.add_vline(x=place / size, line={"width": 3, "color": "#777777", "dash": dash}, annotation=label)
    return figure
