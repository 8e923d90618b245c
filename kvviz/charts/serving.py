"""Draws many requests that share a memory: what it holds tick by tick, who runs, and what a preemption costs."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import plotly.graph_objects as go

from kvviz.base.words import millis
from kvviz.charts import palette
from kvviz.charts.layout import blank
from kvviz.charts.panels import Panel, Part, panels_figure

PARTS = {
    "used": ("tokens", palette.KEPT),
    "internal": ("taken and empty", palette.WASTED),
    "external": ("free, but in holes too small", palette.GIVEN_UP),
}
BATCHES = {
    "reserved": ("Continuous batching, reserved for the longest", palette.KEPT),
    "paged": ("Continuous batching, in blocks", palette.KEPT),
    "batched": ("Static batches, reserved for the longest", palette.FREE),
}
Found = Mapping[str, Any]
CLOSE = 0.014  # of the axis: the points of two returns would cover one another
ASIDES = (0.0, 0.26, -0.26, 0.13, -0.13, 0.39, -0.39)  # of the distance between two rows


def batches_figure(ways: Sequence[Found]) -> go.Figure:
    """Draw how many sequences run at each tick in continuous batches, reserved and in blocks, and in static ones."""
    kept = [way for way in ways if way["name"] in BATCHES]
    panels = []
    for way in kept:
        title, colour = BATCHES[way["name"]]
        says = f", done at tick {way['ended_at_tick']:,}"
        panels.append(Panel(title, [Part("sequences that run", colour, way["ticks"]["running"])], says))
    most, last = (max(way[name] for way in kept) for name in ("most_running", "ended_at_tick"))
    return panels_figure(panels, "tick", "sequences", most=most, last=last, rows=len(panels))


def waste_figure(ways: Sequence[Found], slots: int, last: int) -> go.Figure:
    """Draw the memory of policies over time in slots, one below another: tokens, and what is wasted of it.

    `last`: the tick at which the axis ends, the same for every policy.
    """
    panels = [
        Panel(way["title"], [Part(title, colour, way["ticks"][part]) for part, (title, colour) in PARTS.items()])
        for way in ways
    ]
    figure = panels_figure(panels, "tick", "slots", most=slots, last=last, rows=len(panels))
    return figure.add_hline(y=slots, line={"color": "#888888", "width": 1, "dash": "dot"}, row="all", col="all")


def returns_figure(found: Mapping[str, tuple[Sequence[float], str]]) -> go.Figure:
    """Draw the seconds of each return from a preemption as a point, a row for each rule, and the median of each.

    `found` maps a rule's name to its seconds and its colour; the first stands on top. Points that would cover one
    another stand beside their row's middle.
    """
    most = max((each for seconds, _ in found.values() for each in seconds), default=0)
    figure = blank("ms from a return to the next token", "", height=200, showlegend=False, margin_t=0)
    for row, ((name, (seconds, colour)), above) in enumerate(zip(found.items(), (1, -1), strict=True)):
        words = f"{name}: %{{x:.3g}} ms<extra></extra>"
        look = {"color": colour, "size": 13, "opacity": 0.55, "line": {"width": 1, "color": colour}}
        ms = [1e3 * each for each in seconds]
        y = [row + aside for aside in _asides(seconds, CLOSE * most)]
        figure.add_scatter(x=ms, y=y, mode="markers", marker=look, name=name, hovertemplate=words)
        middle = {"x": 1e3 * median(seconds), "y": row}
        figure.add_annotation(text="|", font={"size": 26, "color": colour}, showarrow=False, **middle)
        words = f"<b>{millis(median(seconds), 2)}</b>, the median of {len(seconds)}"
        figure.add_annotation(text=words, font_color=colour, showarrow=False, yshift=26 * above, **middle)
    rows = {"tickvals": list(range(len(found))), "ticktext": list(found)}
    figure.update_yaxes(**rows, range=[1.9, -0.9], rangemode="normal", showgrid=False, zeroline=False, tickfont_size=14)
    return figure.update_xaxes(range=[0, 1.05e3 * most])


def _asides(seconds: Sequence[float], close: float) -> list[float]:
    """Return how far each point stands from its row's middle: 0, or to either side of points that are `close`."""
    asides = [0.0] * len(seconds)
    order, taken = sorted(range(len(seconds)), key=seconds.__getitem__), list[tuple[float, float]]()
    for place in order:
        near = {aside for at, aside in taken if seconds[place] - at < close}
        asides[place] = next((aside for aside in ASIDES if aside not in near), 0.0)
        taken.append((seconds[place], asides[place]))
    return asides
