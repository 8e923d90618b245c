"""What all figures share: an empty one in the usual layout, names from outside made safe, colours for a dark page."""

import html
import math
import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from statistics import fmean, median
from typing import Any

import plotly.graph_objects as go
from plotly.io.json import to_json_plotly

from kvviz.charts import palette

LEGEND = {
    "orientation": "h",
    "y": 1.02,
    "yanchor": "bottom",
    "x": 0,
    "font": {"size": 14},
}  # a horizontal legend above the chart
MARGIN = {"l": 10, "r": 10, "t": 30, "b": 10}
HEIGHT = 450  # pixels, of a chart that asks for no other
BARE = 12  # pixels above a chart without a legend
INK = "#3B4652"  # of all that is written in a figure and belongs to no line
DOTTED = {"dash": "dot", "width": 1.5, "color": "#888888"}  # a line that marks a place on an axis


def blank(x: str | None, y: str, lines: Sequence[Mapping[str, Any]] = (), /, **more: Any) -> go.Figure:
    """Return a figure with titled axes, y from 0, a legend above. `more` is further layout.

    Give it all lines and notes at once: Plotly checks the whole figure again with each one that is added later.
    """
    whole: dict[str, Any] = {
        "font": {"size": 14},
        "legend": LEGEND,
        "margin": MARGIN,
        "xaxis": {"title": {"text": x}},
        "yaxis": {"title": {"text": y}, "rangemode": "tozero"},
    }
    for name, part in more.items():  # nested as Plotly keeps it, which is five times as quick as `yaxis_title`
        outer, _, inner = name.partition("_")
        whole |= {outer: whole[outer] | {inner: part}} if inner and outer in whole else {name: part}
    return go.Figure(data=list(lines), layout=whole)


def glossed(run: Mapping[str, Any]) -> str:
    """Return a design's title with its gloss in small paler type under it, if it has one, as Plotly's HTML."""
    return as_text(run["title"]) + small_print(run.get("gloss", ""))


def named_rows(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the ticks of an axis whose rows are these designs, each with its gloss, a little apart from the axis."""
    words = [f"{glossed(run)}  ".replace("<br>", "  <br>") for run in runs]
    return {"tickvals": [run["title"] for run in runs], "ticktext": words}


def small_print(gloss: str) -> str:
    """Return a gloss as a line of its own in small paler type, as Plotly's HTML; '' for none."""
    return f"<br><span style='font-size:12px;fill-opacity:0.85'>{as_text(gloss)}</span>" if gloss else ""


FEW = 5  # lines that carry their names at their ends
LONGEST = 18  # characters of such a name
AT_EDGE: Mapping[str, Any] = {"xref": "paper", "x": 1, "xanchor": "left", "align": "left", "xshift": 8}
APART = 0.07  # of the axis, between two names
MORE = 0.025  # of the axis, around a name of several lines
LONG = 128  # points of a line that is long
LAST = 5  # points of a long line whose median is where it ends, though the very last may be a spike


def name_ends(figure: go.Figure) -> go.Figure:
    """Put each line's name at its end in place of the legend, if they are few, short, and all at the right edge."""
    lines = [line for line in figure.data if line.mode != "markers" and line.hoverinfo != "skip"]
    named = [line for line in lines if line.name and line.x is not None and len(line.x)]
    names = [line.name if len(line.name) <= LONGEST else line.name.replace(", ", "<br>") for line in named]
    short = all(_width(name) <= LONGEST for name in names)
    together = len({line.x[-1] for line in named}) == 1 and all(line.y[-1] is not None for line in named)
    if not 0 < len(named) <= FEW or not short or not together:
        return figure
    log = figure.layout.yaxis.type == "log"
    drawn = [value for line in figure.data for value in line.y if value is not None]  # a band may reach above its line
    x = math.log10 if figure.layout.xaxis.type == "log" else float
    name_at_edge(
        figure,
        [(name, line.line.color, _end(line.y)) for name, line in zip(names, named, strict=True)],
        (min(drawn) if log else min(0.0, *drawn), max(drawn)),
    )
    # without a range the axis would make room for the names inside
    first, last = x(min(line.x[0] for line in named)), x(named[0].x[-1])
    edge = 0.015 * (last - first)
    return figure.update_xaxes(range=[first - edge, last + edge])


def _end(values: Sequence[float]) -> float:
    """Where a line ends: its last value, or the median of the last few of a long line, which may end in a spike."""
    return median(values[-LAST:]) if len(values) > LONG else values[-1]


def _width(name: str) -> int:
    """Characters of the longest line of a name."""
    return max(map(len, name.split("<br>")))


def name_at_edge(figure: go.Figure, names: Sequence[tuple[str, str, float]], reach: tuple[float, float]) -> None:
    """Write each name in its colour at the right edge, as near as it fits to its value, and leave the legend out.

    `reach` is the lowest and the highest value of the axis.
    """
    figure.update_layout(showlegend=False, margin_r=room_at_edge(names))
    log, height = figure.layout.yaxis.type == "log", figure.layout.height or HEIGHT
    add_notes(figure, notes_apart(names, reach, height, log=log, **AT_EDGE))


def room_at_edge(names: Sequence[tuple[str, str, float]]) -> int:
    """Pixels that names at the right edge take."""
    return 24 + 8 * max(_width(name) for name, _, _ in names)


def add_notes(figure: go.Figure, notes: Sequence[Mapping[str, Any]]) -> None:
    """Add these annotations at once: Plotly checks all annotations again with each one that is added by itself."""
    figure.layout.annotations += tuple(notes)


def notes_apart(
    names: Sequence[tuple[str, str, float]],
    reach: tuple[float, float],
    height: float,
    *,
    log: bool = False,
    lift: float = 0,
    **place: Any,
) -> list[dict[str, Any]]:
    """Return names in their colours above one another, each as near as it fits to `lift` pixels above its value.

    `reach` is the lowest and the highest value of the axis, `height` the figure's in pixels. `place` says where the
    names stand from left to right, in Plotly's words.
    """
    y = math.log10 if log else float
    low, high = map(y, reach)
    room = height - 80
    ranked = sorted(names, key=lambda each: each[2])
    wanted = [(y(value) - low) / (high - low or 1) for _, _, value in ranked]
    places = _apart(wanted, [_height(name) for name, _, _ in ranked])
    return [
        {"text": name, "y": y(value), "showarrow": False, "font_color": colour, "yshift": (at - want) * room + lift}
        | place
        for (name, colour, value), want, at in zip(ranked, wanted, places, strict=True)
    ]


def _height(name: str) -> float:
    """The share of an axis that a name takes: names of several lines stand a little further apart."""
    lines = 1 + name.count("<br>")
    return APART * lines + MORE * (lines > 1)


def _apart(wanted: Sequence[float], high: Sequence[float]) -> list[float]:
    """Places in order, each as near to where it is wanted as the heights allow, and none below 0.

    That is isotonic regression of what is left when the names below are taken off: neighbours give way to both sides.
    """
    below = list(accumulate(high[1:], initial=0.0))
    free, n = [want - under for want, under in zip(wanted, below, strict=True)], len(wanted)
    level = [max(min(fmean(free[j : k + 1]) for k in range(i, n)) for j in range(i + 1)) for i in range(n)]
    return [max(0.0, each) + under for each, under in zip(level, below, strict=True)]


def upright(x: float, line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a vertical line over the whole height, as a shape for a new figure: `add_vline` takes far longer."""
    return {"type": "line", "x0": x, "x1": x, "xref": "x", "y0": 0, "y1": 1, "yref": "y domain", "line": line}


def watermark(figure: go.Figure, word: str) -> go.Figure:
    """Write across a figure that it was not measured on this machine."""
    place = {"x": 0.5, "y": 0.99, "xref": "paper", "yref": "paper", "yanchor": "top", "showarrow": False}
    return figure.add_annotation(text=f"<b>{word}</b>", font={"size": 26, "color": "rgba(128, 128, 128, 0.5)"}, **place)


def log_ticks(least: float, most: float) -> dict[str, Any]:
    """The ticks of a logarithmic axis at 1, 2 and 5 of each power of ten between two values, as plain numbers."""
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    ticks = [float(f"{step}e{power}") for power in powers for step in (1, 2, 5)]
    return {"tickvals": ticks, "ticktext": [f"{tick:,g}" for tick in ticks]}


def fit_heights(figure: go.Figure) -> None:
    """Give a chart a vertical axis that its lines fill; a linear one begins at 0."""
    drawn = [y for line in figure.data for y in line.y or () if y]
    if not drawn:
        return
    least, most = min(drawn), max(drawn)
    if figure.layout.yaxis.type == "log":
        reach = [math.log10(least / 1.25), math.log10(most * 1.25)]
        figure.update_yaxes(range=reach, **log_ticks(least, most))
    else:
        figure.update_yaxes(range=[0, 1.06 * most])


def as_text(value: object) -> str:
    """Escape a name from outside, because Plotly renders some HTML tags, such as links, in any text."""
    return html.escape(str(value), quote=False)


_AXIS = re.compile(r"[xy]axis\d*")


def _legible(layout: dict[str, Any]) -> None:
    """Write axes and labels in one size and ink, darker than the template's, at a height that is known.

    A chart without a legend gets no gap for one. The layout is plain data, because a figure checks every change anew.
    """
    layout.setdefault("height", HEIGHT)
    layout.setdefault("font", {})["color"] = INK
    margin = layout.setdefault("margin", {})
    if layout.get("showlegend") is False and margin.get("t") == MARGIN["t"]:
        margin["t"] = BARE
    for name in sorted({"xaxis", "yaxis", *filter(_AXIS.fullmatch, layout)}):
        axis = layout.setdefault(name, {})
        axis.setdefault("title", {})["font"] = {"size": 14, "color": INK}
        axis |= {"tickfont": {"size": 13, "color": INK}, "separatethousands": True}  # from 1,000 on, not from 10,000


_DATA = ("x", "y", "z", "text", "hovertext", "customdata")  # skipped: these long lists contain no colours


def for_page(figure: go.Figure, *, dark: bool) -> tuple[str, int]:
    """A figure as plotly.js reads it, and its height in pixels: legible, and on a dark page in lighter colours.

    Its template is left out, because the page has its own.
    """
    parts = figure.to_dict()
    _legible(layout := parts["layout"])
    layout.pop("template", None)
    return to_json_plotly(_lighter(parts) if dark else parts), layout["height"]


def _lighter(part: object) -> object:
    if isinstance(part, dict):
        return {name: inner if name in _DATA else _lighter(inner) for name, inner in part.items()}
    if isinstance(part, list | tuple):
        return [_lighter(inner) for inner in part]
    return palette.ON_DARK.get(part.upper(), part) if isinstance(part, str) and part.startswith("#") else part
