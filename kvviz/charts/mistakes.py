"""Draws a mistake beside the right loop: logit error, live tensor bytes, work or step times, over the same axis."""

from collections.abc import Sequence
from math import log10

import plotly.graph_objects as go

from kvviz.base.words import small
from kvviz.charts import palette
from kvviz.charts.layout import blank, name_ends

SAME = 1e-3  # in float32, logits of two equivalent computations differ by less than this
_DOTTED = {"dash": "dot", "color": "#888888", "width": 1}
LEAST = 1e-7  # where a difference of exactly 0 stands at the highest: a logarithmic axis has no place for it

_AXES = {  # of what each forward took: the axis, by what a value is divided, and how the pointer says it
    "memory": ("KiB that stay alive", 2**10, "%{y:,.0f} KiB"),
    "work": ("million multiply-adds", 1e6, "%{y:,.2f} M"),
    "clock": ("ms by this stopwatch", 1e-3, "%{y:.2f} ms"),
}


def off_by(right: Sequence[float], wrong: Sequence[float]) -> go.Figure:
    """Draw the largest |difference| of the logits from the true ones at every new token."""
    least = min((d for d in (*right, *wrong) if d), default=1.0)
    bottom = min(LEAST, least / 10)
    figure = _blank("new token", "largest difference of a logit", "log")
    _lines(figure, [d or bottom for d in right], [d or bottom for d in wrong], "%{text}")
    for line, values in zip(figure.data, (right, wrong), strict=True):
        line.text = [f"{d:.2g}" for d in values]
        _break_at_zeros(line, values)
    both = [x for x, pair in enumerate(zip(right, wrong, strict=False), 1) if pair == (0, 0)]
    ring = {"symbol": "circle-open", "size": 13, "color": figure.data[0].line.color, "line": {"width": 2}}
    rings = {"x": both, "y": [bottom] * len(both), "mode": "markers", "marker": ring, "cliponaxis": False}
    figure.add_scatter(**rings, hoverinfo="skip", showlegend=False)
    if both == [1]:
        beside = {"x": 1, "y": log10(bottom), "xanchor": "left", "xshift": 14, "showarrow": False}
        figure.add_annotation(text="the prefill: right in both", font_size=13, bgcolor=palette.PAPER, **beside)
    for values, line in ((right, figure.data[0]), (wrong, figure.data[1])):
        if most := max(values, default=0.0):
            above = {"x": values.index(most) + 1, "y": log10(most), "yanchor": "bottom", "yshift": 7}
            figure.add_annotation(
                text=f"<b>{small(most)}</b>",
                showarrow=False,
                font_color=line.line.color,
                bgcolor=palette.PAPER,
                **above,
            )
    powers = [power for power in range(-40, 9, 2) if 10.0**power > bottom]
    labels = [f"10<sup>{power}</sup>".replace("-", "−") for power in powers]  # plotly's own are larger
    figure.update_yaxes(tickvals=[bottom, *(10.0**power for power in powers)], ticktext=["exactly 0", *labels])
    ends, words = [1, max(len(right), len(wrong))], f"tolerance {SAME:g}"
    figure.add_scatter(x=ends, y=[SAME, SAME], name=words, mode="lines", line=_DOTTED, hoverinfo="skip")
    at = {"xref": "x domain", "x": 1, "xanchor": "right", "y": log10(SAME), "yanchor": "bottom"}
    figure.add_annotation(text=words, showarrow=False, font_color="#6B7280", **at)
    return name_ends(figure)


def _break_at_zeros(line: go.Scatter, values: Sequence[float]) -> None:
    """Draw no line between a difference of exactly 0, which has no place on the axis, and one above 0."""
    points: list[tuple[float | str | None, ...]] = []
    for i, point in enumerate(zip(line.x, line.y, line.text, values, strict=True)):
        if i and bool(values[i - 1]) != bool(values[i]):
            points.append((None, None, "", None))
        points.append(point)
    line.x, line.y, line.text, kept = ([point[field] for point in points] for field in range(4))
    line.meta = {"values": kept}  # for its table


def by_forward(what: str, right: Sequence[float], wrong: Sequence[float]) -> go.Figure:
    """Draw the bytes alive after each forward (`memory`), its multiply-adds (`work`) or its seconds (`clock`)."""
    title, unit, hover = _AXES[what]
    figure = _blank("forward pass", title, "linear")
    return name_ends(_lines(figure, [n / unit for n in right], [n / unit for n in wrong], hover))


def _blank(x: str, y: str, kind: str) -> go.Figure:
    margin = {"t": 20, "r": 10, "b": 50}
    return blank(x, y, height=340, font_size=15, margin=margin, yaxis_type=kind)


def _lines(figure: go.Figure, right: Sequence[float], wrong: Sequence[float], hover: str) -> go.Figure:
    """Add the lines of the right and the wrong loop, in the colours of their modes."""
    for values, mode, title in ((right, "cached", "the right loop"), (wrong, "uncached", "with the mistake")):
        line, marker = {"color": palette.LIGHT[mode], "width": 2.5}, {"symbol": palette.MARKER[mode], "size": 7}
        look = {"mode": "lines+markers", "line": line, "marker": marker, "cliponaxis": False}
        x, words = list(range(1, len(values) + 1)), f"{title}: {hover}<extra></extra>"
        figure.add_scatter(x=x, y=list(values), name=title, hovertemplate=words, **look)
    return figure
