"""Draws small charts side by side over the same axes: one of each design or policy, so that no line hides another."""

import math
from collections.abc import Sequence
from copy import deepcopy
from functools import lru_cache
from typing import Any, NamedTuple

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
    layout = deepcopy(_grid(len(panels), rows, across, above / area if rows > 1 else 0))
    width = (1 - BETWEEN * (across - 1)) / across
    for title, text in zip(layout["annotations"], titles, strict=True):
        left = {"align": "left", "xanchor": "left", "x": title["x"] - width / 2, "xshift": -PAD, "yshift": 12}
        title |= {"text": text, "font": {"size": 13}, **left}
    room = {"l": PAD + 6 if measure else 4, "r": PAD if measure else 4, "t": over, "b": 58}  # left: half a number
    layout |= {"height": area + room["t"] + room["b"], "margin": room, "font": {"size": 13}}
    layout |= {"showlegend": False, "hovermode": "x unified", "plot_bgcolor": GROUND}
    lines, ticks = [], ticks_to(most)
    for number, panel in enumerate(panels):
        axis = str(number + 1) if number else ""
        place = {"stackgroup": str(number), "xaxis": f"x{axis}", "yaxis": f"y{axis}"}
        lines += [{**_line(part, unit), **place} for part in panel.parts]
        x_axis, y_axis = layout[f"xaxis{axis}"], layout[f"yaxis{axis}"]
        x_axis |= {"range": [min(1, last - 1), last], "nticks": 5}
        y_axis |= {"range": [0, 1.02 * ticks[-1]], "tickvals": ticks}
        if measure:  # a lower number would stand on what is drawn
            y_axis |= {"range": [0, 1.2 * ticks[-1]], "tickvals": [0, ticks[-1]]}
            y_axis |= {"ticktext": ["", f"{ticks[-1]:,g} {measure}"], "ticklabelposition": "inside top"}
            y_axis |= {"showticklabels": number % across == 0}
        if panel.end:
            at_end = {"text": panel.end, "x": last, "xanchor": "right", "y": 1.2 * ticks[-1], "yanchor": "top"}
            layout["annotations"].append({**at_end, "xref": f"x{axis}", "yref": f"y{axis}", "showarrow": False})
        if number >= (rows - 1) * across:
            x_axis["title"] = {"text": x, "standoff": 4}
        if unit and number % across == 0:  # an empty title takes its room, too
            y_axis["title"] = {"text": unit}
    return go.Figure(lines, layout)


@lru_cache(maxsize=32)  # two figures side by side have the same, and Plotly takes 10 ms over one
def _grid(count: int, rows: int, across: int, apart: float) -> dict[str, Any]:
    """Return the layout of so many panels as plain data, because Plotly takes long over each update; no titles yet."""
    places: list[dict | None] = [{} if number < count else None for number in range(rows * across)]
    specs = [places[row * across : (row + 1) * across] for row in range(rows)]
    gap, titles = {"horizontal_spacing": BETWEEN, "vertical_spacing": apart}, ["title"] * count
    made = make_subplots(rows, across, shared_yaxes="all", subplot_titles=titles, specs=specs, **gap)
    return made.layout.to_plotly_json()


def _line(part: Part, unit: str) -> dict[str, object]:
    """Draw a part as the upper edge of an area in its colour."""
    return {
        "type": "scatter",
        "name": part.name,
        "mode": "lines",
        "x": list(range(1, len(part.values) + 1)),
        "y": list(part.values),
        "line": {"color": part.colour, "width": 0, "shape": "hv"},
        "fillcolor": part.colour,
        "hovertemplate": f"{part.name}: %{{y:,.4~g}} {unit}".rstrip() + "<extra></extra>",
    }
