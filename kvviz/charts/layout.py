"""What all figures share: an empty one in the usual layout, names from outside made safe, colours for a dark page."""

import html
from typing import Any

import plotly.graph_objects as go

from kvviz.charts import palette

LEGEND = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}  # a horizontal legend above the chart
MARGIN = {"l": 10, "r": 10, "t": 30, "b": 10}


def blank(x: str | None, y: str, **more: Any) -> go.Figure:
    """Return a figure without data: titled axes, y from 0, a legend above. `more` is further layout."""
    usual = {"font_size": 14, "legend": LEGEND, "margin": MARGIN, "xaxis_title": x, "yaxis_title": y}
    return go.Figure().update_layout(**{**usual, "yaxis_rangemode": "tozero", **more})


def as_text(value: object) -> str:
    """Escape a name from outside, because Plotly renders some HTML tags, such as links, in any text."""
    return html.escape(str(value), quote=False)


_DATA = ("x", "y", "z", "text", "hovertext", "customdata")  # skipped: these long lists contain no colours


def on_dark(figure: go.Figure) -> go.Figure:
    """Return a copy of the figure in lighter colours; the original stays unchanged."""
    return go.Figure(_lighter(figure.to_dict()))


def _lighter(part: object) -> object:
    if isinstance(part, dict):
        return {name: inner if name in _DATA else _lighter(inner) for name, inner in part.items()}
    if isinstance(part, list | tuple):
        return [_lighter(inner) for inner in part]
    return palette.ON_DARK.get(part.upper(), part) if isinstance(part, str) and part.startswith("#") else part
