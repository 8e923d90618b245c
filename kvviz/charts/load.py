"""Draws a load sweep: throughput against latency, and a decode step's time against the sequences in it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from kvviz.base.words import millis
from kvviz.charts import palette
from kvviz.charts.layout import blank, log_ticks

Found = Mapping[str, Any]
PREDICTED, LIMIT = "#6B7280", "#9A4B7D"
HEIGHT = 360
ROOM = 0.15  # of the axis, for a label at the left of its point
GROWS = "the queue grows"


def latency_figure(found: Found, name: str, limit_s: float) -> go.Figure:
    """Draw a latency's p50 and p99 at each rate against the requests completed, up to where the queue grows.

    `name` is "ttft" or "itl"; the dashed line is the reader's own limit.
    """
    points = [p for p in found["rows"] if p[f"{name}_s_p99"] is not None]
    foretold = [p["predicted"] for p in points if p["predicted"]]
    most = 1.12 * max((p["completed_per_s"] for p in [*points, *foretold]), default=1)
    figure = blank("requests completed a second", f"{name.upper()}, ms", height=HEIGHT, hovermode="closest")
    _line(figure, foretold, f"{name}_s_p99", "p99 predicted", PREDICTED, "dot")
    _line(figure, points, f"{name}_s_p50", "p50", "#56B4E9", "solid")
    _line(figure, points, f"{name}_s_p99", "p99", palette.KEPT, "solid", points)
    if growing := [p for p in points if p["unbounded"]]:
        x, y = _places(growing, f"{name}_s_p99")
        look = {"symbol": "diamond", "size": 11, "color": palette.AGAIN}
        figure.add_scatter(x=x, y=y, mode="markers", marker=look, name=GROWS, hoverinfo="skip")
        # on a logarithmic axis, an annotation's y is a logarithm; the first of these is at the lowest rate
        text = f"the knee,<br>{growing[0]['rate']:.3g}/s"  # on a phone one line would be cut off
        knee = {"x": x[0], "y": math.log10(y[0]), "text": text, "ax": 46, "ay": -36, "standoff": 6}
        figure.add_annotation(**knee, arrowhead=2, arrowcolor=palette.AGAIN, font_color=palette.AGAIN)
    drawn = [value for line in figure.data for value in line.y]
    limit = 1e3 * limit_s
    look = {"mode": "lines+text", "line": {"color": LIMIT, "width": 1.5, "dash": "dash"}, "textfont_color": LIMIT}
    said = f" your limit, {millis(limit_s)}{' on average' if name == 'itl' else ''}"
    words = {"text": [said, ""], "textposition": "bottom right", "hoverinfo": "skip"}
    figure.add_scatter(x=[0, most], y=[limit, limit], showlegend=False, **look, **words)
    low, high = min([*drawn, limit]) / 1.5, max([*drawn, limit]) * 2
    reach = {"range": [math.log10(low), math.log10(high)], **log_ticks(low, high)}
    return figure.update_xaxes(range=[0, most]).update_yaxes(type="log", rangemode="normal", **reach)


def _places(points: Sequence[Found], name: str) -> tuple[list[float], list[float]]:
    return [p["completed_per_s"] for p in points], [1e3 * p[name] for p in points]


def _line(
    figure: go.Figure,
    points: Sequence[Found],
    name: str,
    title: str,
    colour: str,
    dash: str,
    labelled: Sequence[Found] = (),
) -> None:
    """Add a line with a mark for each point, and the offered rates beside those `labelled` that stand apart."""
    x, y = _places(points, name)
    rates, free = [], 0.0  # from where on the next label has room
    for p in labelled:
        clear = not p["unbounded"] and p["completed_per_s"] >= free
        rates.append(f"{p['rate']:.3g}/s" if clear else "")
        free = p["completed_per_s"] + ROOM * max(x) if clear else free
    words = f"%{{x:.3g}} completed a second: {title} %{{y:.3g}} ms<extra></extra>"
    look: dict[str, Any] = {"line": {"color": colour, "width": 3 if labelled else 2, "dash": dash}, "marker_size": 7}
    mode = "lines+markers+text" if labelled else "lines+markers"
    figure.add_scatter(
        x=x, y=y, name=title, mode=mode, text=rates, textposition="top left", hovertemplate=words, **look
    )


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
        name="measured, median and quartiles",
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
    return figure.update_xaxes(range=[0, 1.04 * last])


def _mark(figure: go.Figure, x: float, words: str, colour: str, height: float, *, left: bool) -> None:
    """Draw a vertical line with words beside it, below the curves: they begin at its `left`, or end there."""
    figure.add_vline(x=x, line={"color": colour, "width": 1.5, "dash": "dash"})
    side = {"xanchor": "left", "xshift": 5} if left else {"xanchor": "right", "xshift": -5}
    side["align"] = side["xanchor"]
    figure.add_annotation(text=words, font_color=colour, x=x, y=height, yref="paper", showarrow=False, **side)
