"""Draws a load sweep: what is completed at each rate and how long it takes, and a decode step by its sequences."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from kvviz.base.words import millis
from kvviz.charts import palette
from kvviz.charts.layout import blank, log_ticks, name_at_edge, name_ends
from kvviz.experiments.load.figures import goodput

Found = Mapping[str, Any]
PREDICTED, LIMIT = "#5C6672", "#9A4B7D"
FORETOLD = {"color": PREDICTED, "width": 2, "dash": "dot"}
HEIGHT = 360
RATE = "requests offered a second"
GROWS = "the queue<br>grows"


def throughput_figure(found: Found, ttft_s: float, itl_s: float) -> go.Figure:
    """Draw what is completed at each rate, and what of it keeps to both limits, beside what is offered."""
    points = found["rows"]
    figure = blank(RATE, "requests a second", height=HEIGHT, hovermode="x unified")
    x = [p["rate"] for p in points]
    foretold = [p for p in points if p["predicted"]]
    for rows, y, title, line in (
        (points, x, "offered", {"color": PREDICTED, "width": 2, "dash": "dash"}),
        (foretold, [p["predicted"]["completed_per_s"] for p in foretold], "predicted", FORETOLD),
        (points, [p["completed_per_s"] for p in points], "completed", {"color": palette.KEPT, "width": 3}),
        (points, [goodput(p, ttft_s, itl_s) for p in points], "goodput", {"color": palette.NEW, "width": 3}),
    ):
        _line(figure, rows, y, title, line)
    figure.update_yaxes(range=[0, 1.05 * max(x, default=1)])
    return _over_rates(name_ends(figure), points)


def latency_figure(found: Found, name: str, limit_s: float) -> go.Figure:
    """Draw a latency's p50 and p99 at each rate, and the reader's own limit; `name` is "ttft" or "itl"."""
    points = [p for p in found["rows"] if p[f"{name}_s_p99"] is not None]
    foretold = [p for p in points if p["predicted"]]
    figure = blank(RATE, "ms", height=HEIGHT, hovermode="x unified")
    for rows, found_s, percent, title, line in (
        (foretold, [p["predicted"] for p in foretold], "p99", "predicted", FORETOLD),
        (points, points, "p50", "p50", {"color": palette.KEPT, "width": 1.5}),
        (points, points, "p99", "p99", {"color": palette.KEPT, "width": 3}),
    ):
        _line(figure, rows, [1e3 * each[f"{name}_s_{percent}"] for each in found_s], title, line, " ms")
    limit = 1e3 * limit_s
    drawn = [value for line in figure.data for value in line.y]
    low, high = min([*drawn, limit]) / 1.5, max([*drawn, limit]) * 1.5
    reach = {"range": [math.log10(low), math.log10(high)], **log_ticks(low, high)}
    figure.update_yaxes(type="log", rangemode="normal", **reach)
    ends = [(line.name, line.line.color, line.y[-1]) for line in figure.data if line.y]
    if ends:
        name_at_edge(figure, ends, (low, high))
    _over_rates(figure, points)
    figure.add_hline(y=limit, line={"color": LIMIT, "width": 1.5, "dash": "dash"})
    # on a logarithmic axis, an annotation's y is a logarithm
    mean = " on average" if name == "itl" else ""
    words = {"text": f"your limit, {millis(limit_s)}{mean}", "font_color": LIMIT, "showarrow": False}
    return figure.add_annotation(**words, xref="paper", x=0, xanchor="left", y=math.log10(limit), yanchor="top")


def _line(
    figure: go.Figure, points: Sequence[Found], y: Sequence[float], title: str, line: Found, unit: str = ""
) -> None:
    """Add a line over the rates of the points; one that was measured is whole, and has a mark at each."""
    mode, words = "lines" if "dash" in line else "lines+markers", f"{title} %{{y:.3g}}{unit}<extra></extra>"
    look = {"name": title, "mode": mode, "line": line, "marker_size": 7, "hovertemplate": words}
    figure.add_scatter(x=[p["rate"] for p in points], y=list(y), **look)


def _over_rates(figure: go.Figure, points: Sequence[Found]) -> go.Figure:
    """Let the axis begin at no requests, and shade the rates at which the queue grows without bound."""
    last = max((p["rate"] for p in points), default=1)
    if growing := [p["rate"] for p in points if p["unbounded"]]:
        zone = {"fillcolor": palette.AGAIN, "opacity": 0.12, "line_width": 0, "layer": "below"}
        figure.add_vrect(x0=growing[0], x1=1.03 * last, **zone)
        label = {"text": GROWS, "font_color": palette.AGAIN, "x": growing[0], "xanchor": "left", "align": "left"}
        figure.add_annotation(**label, yref="paper", y=0, yanchor="bottom", showarrow=False)
    return figure.update_xaxes(range=[0, 1.03 * last])


def steps_figure(found: Found) -> go.Figure:
    """Draw the median decode step with its quartiles for each number of sequences, and the cost model's."""
    rows, foretold = found["steps"], found["predicted_steps"]
    figure = blank("sequences in the step", "ms", height=HEIGHT)
    xs = [row["running"] for row in rows]
    low, high = ([1e3 * row[f"s_{name}"] for row in rows] for name in ("q1", "q3"))
    band = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    figure.add_scatter(x=xs, y=low, **band)
    figure.add_scatter(x=xs, y=high, fill="tonexty", fillcolor="rgba(0, 114, 178, 0.18)", **band)
    words = "%{x} sequences: %{y:.3g} ms"
    line = {"color": palette.KEPT, "width": 3}
    figure.add_scatter(
        x=xs,
        y=[1e3 * row["s"] for row in rows],
        name="measured",
        mode="lines+markers",
        line=line,
        hovertemplate=words,
    )
    figure.add_scatter(
        x=[count for count, _ in foretold],
        y=[1e3 * seconds for _, seconds in foretold],
        name="predicted",
        mode="lines",
        line={"color": PREDICTED, "width": 2, "dash": "dot"},
        hovertemplate=words,
    )
    last = max([*xs, *(count for count, _ in foretold)], default=1)
    free, heavy = found["free_up_to"], found["outweighs"] and found["outweighs"]["batch"]
    if free:
        _mark(figure, free, f"free up to {free}", palette.NEW, 0.04, left=free < last / 4)
    if heavy and heavy <= last:
        _mark(figure, heavy, f"caches outweigh<br>weights from {heavy}", palette.AGAIN, 0.15, left=heavy < 0.75 * last)
    return name_ends(figure).update_xaxes(range=[0, 1.04 * last])


def _mark(figure: go.Figure, x: float, words: str, colour: str, height: float, *, left: bool) -> None:
    """Draw a vertical line with words beside it, below the curves: they begin at its `left`, or end there."""
    figure.add_vline(x=x, line={"color": colour, "width": 1.5, "dash": "dash"})
    side = {"xanchor": "left", "xshift": 5} if left else {"xanchor": "right", "xshift": -5}
    side["align"] = side["xanchor"]
    figure.add_annotation(text=words, font_color=colour, x=x, y=height, yref="paper", showarrow=False, **side)
