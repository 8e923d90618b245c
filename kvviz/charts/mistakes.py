"""Draws a mistake beside the right loop: logit error, live tensor bytes, work or step times, over the same axis."""

from collections.abc import Sequence

import plotly.graph_objects as go

from kvviz.charts import palette
from kvviz.charts.layout import blank

SAME = 1e-3  # in float32, logits of two equivalent computations differ by less than this
_DOTTED = {"dash": "dot", "color": "#888888", "width": 1}
LEAST = 1e-7  # the bottom of the logarithmic axis, which can't show a difference of exactly 0


def off_by(right: Sequence[float], wrong: Sequence[float]) -> go.Figure:
    """Draw the largest |difference| of the logits from the true ones at every new token."""
    figure = _figure("new token", "largest |logit difference|", log=True)
    _lines(figure, [max(d, LEAST) for d in right], [max(d, LEAST) for d in wrong], "%{y:.2g}")
    ends, words = [1, max(len(right), len(wrong))], "rounding stays below"
    return figure.add_scatter(x=ends, y=[SAME, SAME], name=words, mode="lines", line=_DOTTED, hoverinfo="skip")


def kept_alive(right: Sequence[int], wrong: Sequence[int]) -> go.Figure:
    """Draw the run's live tensor bytes after each forward, in KiB."""
    figure = _figure("forward", "KiB that stay alive")
    return _lines(figure, [n / 1024 for n in right], [n / 1024 for n in wrong], "%{y:,.0f} KiB")


def work_done(right: Sequence[int], wrong: Sequence[int]) -> go.Figure:
    """Draw the multiply-adds of each forward, in millions."""
    figure = _figure("forward", "million multiply-adds")
    return _lines(figure, [n / 1e6 for n in right], [n / 1e6 for n in wrong], "%{y:,.2f} M")


def timed(right: Sequence[float], wrong: Sequence[float]) -> go.Figure:
    """Draw the milliseconds of each forward, the prefill first, by both stopwatches."""
    figure = _figure("forward", "ms by this stopwatch")
    return _lines(figure, [s * 1e3 for s in right], [s * 1e3 for s in wrong], "%{y:.2f} ms")


def _figure(x: str, y: str, *, log: bool = False) -> go.Figure:
    axis = {"yaxis_type": "log" if log else "linear", "yaxis_exponentformat": "power"}
    return blank(x, y, height=330, font_size=15, margin={"t": 40, "r": 10, "b": 50}, **axis)


def _lines(figure: go.Figure, right: Sequence[float], wrong: Sequence[float], hover: str) -> go.Figure:
    """Add the lines of the right and the wrong loop, in the colours of their modes."""
    for values, mode, title in ((right, "cached", "the right loop"), (wrong, "uncached", "with the mistake")):
        line, marker = {"color": palette.LIGHT[mode], "width": 2.5}, {"symbol": palette.MARKER[mode], "size": 7}
        look = {"mode": "lines+markers", "line": line, "marker": marker}
        x, words = list(range(1, len(values) + 1)), f"{title}: {hover}<extra></extra>"
        figure.add_scatter(x=x, y=list(values), name=title, hovertemplate=words, **look)
    return figure
