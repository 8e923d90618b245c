"""Draws the latency curves of a comparison and of a watched run."""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from kvviz.charts import palette
from kvviz.charts.layout import blank
from kvviz.decoding.modes import MODES


def latency_figure(document: Mapping[str, Any], *, log: bool = False) -> go.Figure:
    """Draw the milliseconds per new token of every run of a comparison: medians with quartile bands."""
    kind, margin = "log" if log else "linear", {"t": 40, "r": 20}
    figure = blank("new token", "ms for this token", yaxis_type=kind, hovermode="closest", margin=margin, **_PAPER)
    for run in document["runs"]:
        _add_run(figure, run)
    return figure


_PAPER = {"template": "plotly_white", "font_size": 15}  # for a notebook


def _add_run(figure: go.Figure, run: Mapping[str, Any]) -> None:
    name, line = run["mode"], palette.line(run["mode"])
    x = list(range(1, len(run["step_s"]) + 1))
    low, high = _ms(run["step_s_q1"]), _ms(run["step_s_q3"])
    band = {"fill": "toself", "fillcolor": line["color"], "opacity": 0.18, "mode": "none", "hoverinfo": "skip"}
    figure.add_scatter(x=x + x[::-1], y=high + low[::-1], showlegend=False, **band)
    title = MODES[name].title if name in MODES else name
    marker = {"symbol": palette.MARKER.get(name, "cross"), "size": [11] + [5] * (len(x) - 1)}
    words = {"text": [_hover(run, i) for i in range(len(x))], "hoverinfo": "text"}
    look = {"mode": "lines+markers", "line": line, "marker": marker}
    figure.add_scatter(x=x, y=_ms(run["step_s"]), name=title, **look, **words)


def _ms(seconds: list[float]) -> list[float]:
    return [s * 1000 for s in seconds]


def _hover(run: Mapping[str, Any], i: int) -> str:
    phase = "decode step" if i else "prefill"
    return f"{phase}, token {i + 1}<br>{run['step_s'][i] * 1000:.2f} ms<br>cache: {run['cache_bytes'][i]:,} B"


def watched_figure(steps: Sequence[Any]) -> go.Figure:
    """Draw the milliseconds and cache bytes of each forward of a watched run, on two axes with units."""
    x = [step.index + 1 for step in steps]
    text = [f"{step.phase}, {len(step.fed[0]) if step.fed else 0} tokens fed" for step in steps]
    times, sizes = _ms([step.seconds for step in steps]), [step.cache_bytes / 2**20 for step in steps]
    right = {"title": "cache, MiB", "overlaying": "y", "side": "right", "rangemode": "tozero", "showgrid": False}
    figure = blank("forward", "ms for this forward", yaxis2=right, margin=None, **_PAPER)
    line = {"color": palette.LIGHT["watched"], "width": 2.5}
    figure.add_scatter(x=x, y=times, text=text, name="time", mode="lines+markers", line=line)
    return figure.add_scatter(x=x, y=sizes, name="cache", yaxis="y2", line={"color": "#777777", "dash": "dot"})
