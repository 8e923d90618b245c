"""Draws the latency curves of a comparison and of a watched run."""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from kvviz.charts import palette
from kvviz.charts.layout import LEGEND
from kvviz.decoding.modes import MODES


def latency_figure(document: Mapping[str, Any], *, log: bool = False) -> go.Figure:
    """Draw the milliseconds per new token of every run of a comparison: medians with quartile bands."""
    figure = go.Figure()
    for run in document["runs"]:
        _add_run(figure, run)
    figure.update_layout(
        template="plotly_white",
        font_size=15,
        hovermode="closest",
        legend=LEGEND,
        xaxis={"title": "new token"},
        yaxis={"title": "ms for this token", "type": "log" if log else "linear", "rangemode": "tozero"},
        margin={"t": 40, "r": 20},
    )
    return figure


def _add_run(figure: go.Figure, run: Mapping[str, Any]) -> None:
    name = run["mode"]
    colour = palette.LIGHT.get(name, "#555555")
    x = list(range(1, len(run["step_s"]) + 1))
    low, high = _ms(run["step_s_q1"]), _ms(run["step_s_q3"])
    band = go.Scatter(x=x + x[::-1], y=high + low[::-1], fill="toself", fillcolor=colour, opacity=0.18, mode="none")
    figure.add_trace(band.update(hoverinfo="skip", showlegend=False))
    text = [_hover(run, i) for i in range(len(x))]
    figure.add_trace(
        go.Scatter(
            x=x,
            y=_ms(run["step_s"]),
            name=MODES[name].title if name in MODES else name,
            mode="lines+markers",
            line={"color": colour, "width": 2.5, "dash": palette.DASH.get(name, "dash")},
            marker={"symbol": palette.MARKER.get(name, "cross"), "size": [11] + [5] * (len(x) - 1)},
            text=text,
            hoverinfo="text",
        )
    )


def _ms(seconds: list[float]) -> list[float]:
    return [s * 1000 for s in seconds]


def _hover(run: Mapping[str, Any], i: int) -> str:
    phase = "decode step" if i else "prefill"
    return f"{phase}, token {i + 1}<br>{run['step_s'][i] * 1000:.2f} ms<br>cache: {run['cache_bytes'][i]:,} B"


def watched_figure(steps: Sequence[Any]) -> go.Figure:
    """Draw the milliseconds and cache bytes of each forward of a watched run, on two axes with units."""
    x = [step.index + 1 for step in steps]
    text = [f"{step.phase}, {len(step.fed[0]) if step.fed else 0} tokens fed" for step in steps]
    figure = go.Figure()
    line = {"color": palette.LIGHT["watched"], "width": 2.5}
    time = go.Scatter(x=x, y=_ms([s.seconds for s in steps]), text=text, name="time", mode="lines+markers", line=line)
    size = [step.cache_bytes / 2**20 for step in steps]
    cache = go.Scatter(x=x, y=size, name="cache", yaxis="y2", line={"color": "#777777", "dash": "dot"})
    figure.add_traces([time, cache])
    figure.update_layout(
        template="plotly_white",
        font_size=15,
        legend=LEGEND,
        xaxis={"title": "forward"},
        yaxis={"title": "ms for this forward", "rangemode": "tozero"},
        yaxis2={"title": "cache, MiB", "overlaying": "y", "side": "right", "rangemode": "tozero", "showgrid": False},
    )
    return figure
