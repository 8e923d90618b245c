"""Draws how much of a server's cache was in use while it answered, and what more requests at once did to it."""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from kvviz.base.words import two_digits
from kvviz.charts import palette
from kvviz.charts.layout import blank, name_ends
from kvviz.experiments.comparison.figures import tail
from kvviz.experiments.concurrency.words import waits_of

ALIKE = "prompts alike"  # the last part of a sweep
AT_ONCE = "requests at once"
LOW = 320  # pixels: simple curves, in a pair
Levels = Sequence[Mapping[str, Any]]  # rows of a concurrency sweep (docs/json.md)
SECONDS = "seconds; above: requests at once"
Looks = Sequence[Mapping[str, Any]]  # a sweep's looks at the metrics (docs/json.md)
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
        return f"While the server answered, {most:.3g}% of its cache was in use at each of {len(looks)} looks"
    return f"While the server answered, from {least:.3g}% to {most:.3g}% of its cache was in use"


def tokens_by_level(rows: Levels, alike: Mapping[str, Any] | None = None) -> go.Figure:
    """Draw the tokens a second of all requests together against how many there are at once.

    A diamond is the sweep's last part, whose prompts begin alike.
    """
    figure = _levels(rows, "tokens a second", height=LOW)
    line = {"color": palette.KEPT, "width": 3}
    words = "%{x} at once: %{y:.4g} tokens/s<extra></extra>"
    tokens = [row["tokens_per_s"] for row in rows]
    look = {"mode": "lines+markers", "line": line, "hovertemplate": words, "showlegend": False}
    figure.add_scatter(x=[row["concurrency"] for row in rows], y=tokens, name="tokens/s", marker_size=8, **look)
    if alike is not None:
        look |= {"mode": "markers+text", "text": [f"{ALIKE}  "], "textposition": "middle left"}
        diamond = {"symbol": "diamond", "size": 12, "color": palette.KEPT}
        at = {"x": [alike["concurrency"]], "y": [alike["tokens_per_s"]]}
        figure.add_scatter(**at, name=ALIKE, cliponaxis=False, **look, marker=diamond)
    return figure.update_yaxes(rangemode="tozero")


def waits_by_level(rows: Levels, name: str, title: str) -> go.Figure:
    """Draw a wait's p50 and p99, in ms: `name` is "ttft_s" or "itl_s", `title` names it.

    Levels where it is unknown have no point. A p99 of fewer than 100 waits is the slowest: an open mark.
    """
    figure = _levels(rows, f"{title.lower()}, ms", height=LOW)
    for rank, width in (("p50", 3), ("p99", 1.5)):  # the claims are of the median
        told = [row for row in rows if row[f"{name}_{rank}"] is not None]
        x, y = [row["concurrency"] for row in told], [1e3 * row[f"{name}_{rank}"] for row in told]
        called = [tail(waits_of(row, name)) if rank == "p99" else rank for row in told]
        marks = {"size": 7, "symbol": ["circle-open" if each == "slowest" else "circle" for each in called]}
        look = {"mode": "lines+markers", "line": {"color": palette.KEPT, "width": width}, "marker": marks}
        words = {"customdata": called, "hovertemplate": "%{customdata}: %{y:.3g} ms<extra></extra>"}
        figure.add_scatter(x=x, y=y, name=called[-1] if called else rank, **words, **look)
    return name_ends(figure).update_yaxes(rangemode="tozero")


def use_over_time(looks: Looks) -> go.Figure:
    """Draw the share of a server's cache that was in use at each look of a sweep, in %."""
    told = [look for look in looks if look["used_share"] is not None]
    figure = blank(SECONDS, "of its cache in use, %", height=260, showlegend=False)
    line = {"color": palette.KEPT, "width": 2, "shape": "hv"}
    figure.add_scatter(
        x=[look["at_s"] for look in told], y=[100 * look["used_share"] for look in told], mode="lines", line=line
    )
    return _mark_levels(figure, looks)


def hits_by_part(rows: Levels, rates: Sequence[float | None]) -> go.Figure:
    """Draw the share of the prompts' tokens that each part of a sweep found in the prefix cache, in %.

    The last of the `rates` is of the part whose prompts begin alike; parts of which it is unknown have no bar.
    """
    levels = [str(row["concurrency"]) for row in rows]
    told = [(name, 100 * rate) for name, rate in zip([*levels, ALIKE], rates, strict=False) if rate is not None]
    names, shares = zip(*told, strict=True)
    figure = blank(AT_ONCE, "of the prompts' tokens found, %", height=260, showlegend=False)
    figure.add_bar(
        x=names,
        y=shares,
        text=[f"{share:.0f}%" for share in shares],
        textposition="outside",
        cliponaxis=False,
        marker_color=[palette.KEPT if name == ALIKE else palette.ELSE for name in names],
        hovertemplate="%{x}: %{y:.3g}%<extra></extra>",
    )
    return figure.update_xaxes(type="category").update_yaxes(range=[0, 110], tickvals=[0, 25, 50, 75, 100])


def claim_of_most_use(looks: Looks) -> str:
    """Say how much of the cache was in use at most, and with how many requests at once."""
    told = [look for look in looks if look["used_share"] is not None]
    most = max(told, key=lambda look: look["used_share"])
    return (
        f"At most {two_digits(100 * most['used_share'])}% of its cache was in use, with {most['concurrency']} at once"
    )


def _mark_levels(figure: go.Figure, looks: Looks) -> go.Figure:
    """Mark where each part of a sweep begins, with its number of requests at once; the last one's prompts are alike."""
    begins = {look["part"]: look for look in reversed(looks)}
    for part, look in sorted(begins.items()):
        figure.add_vline(look["at_s"], line_width=1, line_dash="dot", line_color=palette.FREE)
        words = f"{look['concurrency']}{', alike' if part == max(begins) else ''}"
        label = {"text": words, "showarrow": False, "xanchor": "left", "font_size": 13}
        figure.add_annotation(x=look["at_s"], y=1, yref="paper", yanchor="bottom", **label)
    return figure.update_layout(margin_t=36)  # room for the names, also without a legend


def _levels(rows: Levels, unit: str, height: int) -> go.Figure:
    """Begin a figure whose axis has each level at its place, one doubling as far from the next as another."""
    figure = blank(f"{AT_ONCE} (log scale)", unit, height=height)
    levels = [row["concurrency"] for row in rows]
    return figure.update_xaxes(type="log", tickvals=levels, ticktext=[str(level) for level in levels])
