"""Draws how much of a server's cache was in use while it answered."""

from collections.abc import Sequence

import plotly.graph_objects as go

from kvviz.charts import palette
from kvviz.charts.layout import blank

Use = Sequence[tuple[float, float]]  # seconds since the request, the share in use


def cache_in_use(looks: Use) -> go.Figure:
    """Draw the share of a server's cache that was in use at each look."""
    seconds, shares = zip(*looks, strict=True)
    figure = blank("seconds since the request", "of its cache in use, %", height=260, showlegend=False)
    look = {"color": palette.KEPT, "width": 2.5}
    figure.add_scatter(x=seconds, y=[100 * share for share in shares], mode="lines+markers", line=look, name="in use")
    return figure.update_yaxes(rangemode="tozero")


def claim_of_use(looks: Use) -> str:
    """Say what the figure shows."""
    shares = [100 * share for _, share in looks]
    least, most = min(shares), max(shares)
    if least == most:
        return f"While the server answered, {most:.3g} % of its cache was in use at each of {len(looks)} looks"
    return f"While the server answered, from {least:.3g} % to {most:.3g} % of its cache was in use"
