"""Draws small charts side by side over the same axes: one of each design or policy, so that no line hides another."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from kvviz.charts.layout import as_text

GROUND = "rgba(128, 128, 128, 0.07)"  # shows how far each panel's axes go, whatever is drawn in it
HIGH, LINE, NUMBERS = 120, 17, 16  # pixels of a panel, of a line of its title and of the numbers below it
BETWEEN = 0.06  # of the width, between two panels
PAD = 8  # pixels of the ground beside what is drawn on it, as in the template of all charts
Values = Sequence[float | None]


class Part(NamedTuple):
    """What is stacked in a panel: its name, its colour, and its value at each step."""

    name: str
    colour: str
    values: Values


class Panel(NamedTuple):
    """One small chart: its title, the stacked parts, and what is said of them behind the title and at their end."""

    title: str
    parts: Sequence[Part]
    says: str = ""
    end: str = ""


def ticks_to(most: float, fewest: int = 2, steps: int = 5) -> list[float]:
    """Round values from 0 to the lowest top that is no less than `most`, in as few steps as may be."""
    power = 10.0 ** math.floor(math.log10(most / steps))
    sizes = [power * factor for factor in (1, 2, 2.5, 5, 10, 20)]
    counts = {size: math.ceil(most / size) for size in sizes}
    top, count = min((count * size, count) for size, count in counts.items() if fewest <= count <= steps)
    return [top * number / count for number in range(count + 1)]


def panels_figure(
    panels: Sequence[Panel],
    x: str,
    unit: str = "",
    *,
    most: float,
    last: int,
    rows: int,
    across: int = 1,
    measure: str = "",
) -> go.Figure:
    """Draw each panel's parts stacked, all to `last` steps and `most` units.

    `unit`: that of the values, if the parts' names don't say it. `measure`: that of the axes, whose highest value alone
    stands inside of the first panel of a row; without it that panel has an axis beside it.
    """
    titles = [f"<b>{as_text(panel.title)}</b>{panel.says}" for panel in panels]
    over = 34 + LINE * (1 + max(title.count("<br>") for title in titles))  # pixels over a row, for its titles
    above = over + NUMBERS
    area = rows * HIGH + (rows - 1) * above
    gap = {"horizontal_spacing": BETWEEN, "vertical_spacing": above / area if rows > 1 else 0}
    places: list[dict | None] = [
        {} if number < len(panels) else None for number in range(rows * across)
    ]  # the last may stay empty
    specs = [places[row * across : (row + 1) * across] for row in range(rows)]
    figure = make_subplots(rows, across, shared_yaxes="all", subplot_titles=titles, specs=specs, **gap)
    lines, at = [], []  # added together, and attributes set one by one, because Plotly takes long over each update
    for number, panel in enumerate(panels):
        for part in panel.parts:
            line = {"color": part.colour, "width": 0, "shape": "hv"}
            look = {"name": part.name, "stackgroup": str(number), "mode": "lines", "line": line}
            look["fillcolor"] = part.colour
            words = f"{part.name}: %{{y:,.4~g}} {unit}".rstrip() + "<extra></extra>"
            steps = list(range(1, len(part.values) + 1))
            lines.append(go.Scatter(x=steps, y=list(part.values), hovertemplate=words, **look))
            at.append((number // across + 1, number % across + 1))
    figure.add_traces(lines, rows=[row for row, _ in at], cols=[column for _, column in at])
    width = (1 - BETWEEN * (across - 1)) / across
    for title in figure.layout.annotations:
        title.font.size, title.align, title.xanchor = 13, "left", "left"
        title.x, title.xshift, title.yshift = title.x - width / 2, -PAD, 12
    room = {"l": PAD + 6 if measure else 4, "r": PAD if measure else 4, "t": over, "b": 58}  # left: half a number
    figure.update_layout(height=area + room["t"] + room["b"], margin=room, font={"size": 13})
    figure.update_layout(showlegend=False, hovermode="x unified", plot_bgcolor=GROUND)
    ticks = ticks_to(most)
    for axis in figure.select_xaxes():
        axis.range, axis.nticks = [min(1, last - 1), last], 5
    for axis in figure.select_yaxes():
        axis.range, axis.tickvals = [0, 1.02 * ticks[-1]], ticks
    if measure:
        for number, axis in enumerate(figure.select_yaxes()):
            axis.range, axis.tickvals = [0, 1.2 * ticks[-1]], [0, ticks[-1]]  # a lower one would stand on what is drawn
            axis.ticktext, axis.ticklabelposition = ["", f"{ticks[-1]:,g} {measure}"], "inside top"
            axis.showticklabels = number % across == 0
    for number, panel in enumerate(panels):
        if panel.end:
            at_end = {"text": panel.end, "x": last, "xanchor": "right", "y": 1.2 * ticks[-1], "yanchor": "top"}
            figure.add_annotation(at_end, showarrow=False, row=number // across + 1, col=number % across + 1)
    for number in range((rows - 1) * across, len(panels)):
        for axis in figure.select_xaxes(row=number // across + 1, col=number % across + 1):
            axis.title = {"text": x, "standoff": 4}
    if unit:  # an empty title takes its room, too
        figure.update_yaxes(title_text=unit, col=1)
    return figure
