"""Draws how much of a server's cache was in use while it answered, and what more requests at once did to it."""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from kvviz.charts import palette
from kvviz.charts.layout import blank, name_ends

AT_ONCE = "requests at once"
Levels = Sequence[Mapping[str, Any]]  # rows of a concurrency sweep (docs/json.md)
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


def tokens_by_level(rows: Levels) -> go.Figure:
    """Draw the tokens a second of all requests together against how many there are at once."""
    figure = _levels(rows, "tokens a second", height=320)
    line = {"color": palette.KEPT, "width": 3}
    words = "%{x} at once: %{y:.4g} tokens/s<extra></extra>"
    tokens = [row["tokens_per_s"] for row in rows]
    look = {"mode": "lines+markers", "line": line, "marker_size": 8, "hovertemplate": words, "showlegend": False}
    figure.add_scatter(x=[row["concurrency"] for row in rows], y=tokens, name="tokens/s", **look)
    return figure.update_yaxes(rangemode="tozero")


def waits_by_level(rows: Levels, name: str) -> go.Figure:
    """Draw a wait's p50 and p99, in ms: `name` is "ttft_s" or "itl_s". Levels where it is unknown have no point."""
    figure = _levels(rows, "ms", height=300)
    for rank, width in (("p50", 1.5), ("p99", 3)):
        told = [row for row in rows if row[f"{name}_{rank}"] is not None]
        x, y = [row["concurrency"] for row in told], [1e3 * row[f"{name}_{rank}"] for row in told]
        look = {"mode": "lines+markers", "line": {"color": palette.KEPT, "width": width}, "marker_size": 7}
        figure.add_scatter(x=x, y=y, name=rank, hovertemplate=f"{rank}: %{{y:.3g}} ms<extra></extra>", **look)
    return name_ends(figure).update_yaxes(rangemode="tozero")


def _levels(rows: Levels, unit: str, height: int) -> go.Figure:
    """Begin a figure whose axis has each level at its place, one doubling as far from the next as another."""
    figure = blank(AT_ONCE, unit, height=height)
    levels = [row["concurrency"] for row in rows]
    return figure.update_xaxes(type="log", tickvals=levels, ticktext=[str(level) for level in levels])
