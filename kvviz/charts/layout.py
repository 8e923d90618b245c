"""What all figures share: an empty figure in the usual layout, and names from outside made safe."""

import html
from typing import Any

import plotly.graph_objects as go

LEGEND = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}  # a horizontal legend above the chart
MARGIN = {"l": 10, "r": 10, "t": 30, "b": 10}


def blank(x: str | None, y: str, **more: Any) -> go.Figure:
    """Return a figure without data: titled axes, y from 0, a legend above. `more` is further layout."""
    usual = {"font_size": 14, "legend": LEGEND, "margin": MARGIN, "xaxis_title": x, "yaxis_title": y}
    return go.Figure().update_layout(**{**usual, "yaxis_rangemode": "tozero", **more})


def as_text(value: object) -> str:
    """Escape a name from outside, because Plotly renders some HTML tags, such as links, in any text."""
    return html.escape(str(value), quote=False)
