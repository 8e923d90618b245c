"""What a mistake does, drawn: logits off, memory kept, work done, steps timed; right and wrong over the same axis."""

from collections.abc import Sequence

import plotly.graph_objects as go

from kvviz.charts import palette
from kvviz.charts.layout import LEGEND

SAME = 1e-3  # logits of two ways to compute the same differ by less than this in float32
_DOTTED = {"dash": "dot", "color": "#888888", "width": 1}
LEAST = 1e-7  # the bottom of a logarithmic axis: a difference of exactly 0 has no place on it


def off_by(right: Sequence[float], wrong: Sequence[float]) -> go.Figure:
    """Largest |difference| of the logits from the true ones, at every new token."""
    figure = _figure("new token", "largest |logit difference|", log=True)
    _line(figure, "right", range(1, len(right) + 1), [max(value, LEAST) for value in right], "%{y:.2g}")
    _line(figure, "wrong", range(1, len(wrong) + 1), [max(value, LEAST) for value in wrong], "%{y:.2g}")
    ends = [1, max(len(right), len(wrong))]
    figure.add_trace(
        go.Scatter(x=ends, y=[SAME, SAME], name="rounding stays below", mode="lines", line=_DOTTED, hoverinfo="skip")
    )
    return figure


def kept_alive(right: Sequence[int], wrong: Sequence[int]) -> go.Figure:
    """KiB that the run made and that still live after each forward."""
    figure = _figure("forward", "KiB that stay alive")
    _line(figure, "right", range(1, len(right) + 1), [value / 1024 for value in right], "%{y:,.0f} KiB")
    _line(figure, "wrong", range(1, len(wrong) + 1), [value / 1024 for value in wrong], "%{y:,.0f} KiB")
    return figure


def work_done(right: Sequence[int], wrong: Sequence[int]) -> go.Figure:
    """Millions of multiply-adds of each forward."""
    figure = _figure("forward", "million multiply-adds")
    _line(figure, "right", range(1, len(right) + 1), [value / 1e6 for value in right], "%{y:,.2f} M")
    _line(figure, "wrong", range(1, len(wrong) + 1), [value / 1e6 for value in wrong], "%{y:,.2f} M")
    return figure


def timed(right: Sequence[float], wrong: Sequence[float]) -> go.Figure:
    """Milliseconds of each forward, the prefill first, by either stopwatch."""
    figure = _figure("forward", "ms by this stopwatch")
    _line(figure, "right", range(1, len(right) + 1), [value * 1e3 for value in right], "%{y:.2f} ms")
    _line(figure, "wrong", range(1, len(wrong) + 1), [value * 1e3 for value in wrong], "%{y:.2f} ms")
    return figure


def _figure(x: str, y: str, *, log: bool = False) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        height=330,
        font_size=15,
        legend=LEGEND,
        xaxis={"title": x, "dtick": None},
        yaxis={"title": y, "type": "log" if log else "linear", "rangemode": "tozero", "exponentformat": "power"},
        margin={"t": 40, "r": 10, "b": 50},
    )
    return figure


def _line(figure: go.Figure, name: str, x: Sequence[int], y: Sequence[float], hover: str) -> None:
    style = {"right": ("cached", "the right loop"), "wrong": ("uncached", "with the mistake")}
    mode, title = style[name]
    figure.add_trace(
        go.Scatter(
            x=list(x),
            y=list(y),
            name=title,
            mode="lines+markers",
            line={"color": palette.LIGHT[mode], "width": 2.5},
            marker={"symbol": palette.MARKER[mode], "size": 7},
            hovertemplate=f"{title}: {hover}<extra></extra>",
        )
    )
