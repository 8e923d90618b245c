"""Recolours a light-page figure for a dark page."""

import plotly.graph_objects as go

from kvviz.charts import palette

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
