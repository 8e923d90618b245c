"""Draws many requests that share a memory: what it holds tick by tick, and who runs."""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from kvviz.charts import palette
from kvviz.charts.panels import Panel, Part, panels_figure

PARTS = {
    "used": ("tokens", palette.KEPT),
    "internal": ("taken and empty", palette.WASTED),
    "external": ("free, but in holes too small", palette.GIVEN_UP),
}
BATCHES = {
    "reserved": ("Continuous batching, reserved for the longest", palette.KEPT),
    "paged": ("Continuous batching, in blocks", palette.KEPT),
    "batched": ("Static batches, reserved for the longest", palette.AGAIN),
}
Found = Mapping[str, Any]


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
