"""Draws the small figures that prove a quiz's answers: which pairs are computed, and bars of one quantity."""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from kvviz.charts import palette
from kvviz.charts.layout import blank

NONE, KEPT, NEW, AGAIN, MASKED = range(5)  # what a cell is
WORDS = ("–", "kept", "new", "again", "masked")
COLOURS = ("#C9D0D8", palette.KEPT, palette.NEW, palette.AGAIN, "rgba(0,0,0,0)")
Cells = Sequence[Sequence[int]]
_SCALE = [[(step + end) / len(COLOURS), each] for step, each in enumerate(COLOURS) for end in (0, 1)]


def cells_figure(grids: Mapping[str, Cells], x: str, y: str) -> go.Figure:
    """Draw grids of cells side by side, each under its name; the first row is on top."""
    figure = make_subplots(1, len(grids), subplot_titles=list(grids), horizontal_spacing=0.12)
    for column, cells in enumerate(grids.values(), 1):
        gap = 0 if len(cells) > 20 else 2
        places = {"x": list(range(len(cells[0]))), "y": list(range(len(cells)))}  # as positions are counted
        look = {"colorscale": _SCALE, "zmin": 0, "zmax": len(COLOURS), "showscale": False, "xgap": gap, "ygap": gap}
        # a value in the middle of its colour's part of the scale
        z = [[cell + 0.5 for cell in row] for row in cells]
        text = [[WORDS[cell] for cell in row] for row in cells]  # of the table behind the chart
        figure.add_heatmap(z=z, text=text, **places, **look, hoverinfo="skip", row=1, col=column)
        axis = "x" if column == 1 else f"x{column}"
        square = {"constrain": "domain", "row": 1, "col": column}  # cells, at the corner below the claim
        figure.update_yaxes(scaleanchor=axis, constraintoward="top", **square)
        figure.update_xaxes(constraintoward="left", **square)
    named = any(grids)
    figure.update_layout(height=400, margin={"l": 10, "r": 10, "t": 30 if named else 4, "b": 10}, font_size=14)
    ticks: dict[str, Any] = {"dtick": 1} if all(len(cells) <= 10 for cells in grids.values()) else {"nticks": 8}
    figure.update_xaxes(title=x, showgrid=False, zeroline=False, **ticks)
    figure.update_yaxes(autorange="reversed", showgrid=False, zeroline=False, **ticks)
    return figure.update_yaxes(title=y, col=1)


def causal(tokens: int, cell: int = NEW) -> list[list[int]]:
    """The cells of a causal layer's prefill: each token's query meets the keys up to its own."""
    return [[cell if key <= query else MASKED for key in range(tokens)] for query in range(tokens)]


def bars_figure(parts: Mapping[str, tuple[str, Sequence[float]]], places: Sequence[str], unit: str) -> go.Figure:
    """Draw bars, a group for each place: by name a colour and its values, each written at its bar."""
    figure = blank(None, unit, height=330, bargap=0.35)
    for name, (colour, values) in parts.items():
        text = [f"{value:,.3g}" for value in values]
        look = {"marker_color": colour, "textposition": "outside", "cliponaxis": False}
        figure.add_bar(x=list(places), y=list(values), name=name, text=text, hoverinfo="skip", **look)
    return figure.update_layout(showlegend=len(parts) > 1)
