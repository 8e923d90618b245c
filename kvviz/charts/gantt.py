"""Draws what became of each request over time, under one policy below another: it waits, is prefilled, decodes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from kvviz.charts import palette
from kvviz.charts.layout import as_text
from kvviz.charts.panels import GROUND, INK, LINE
from kvviz.experiments.batching.words import mark

Found = Mapping[str, Any]
KINDS = {
    "waiting": ("waiting", "#C9D0D8"),
    "prefill": ("prefill", palette.NEW),
    "decode": ("decode", palette.KEPT),
    "preempted": ("preempted, waiting again", palette.AGAIN),
}
ROW, LEAST = 9, 120  # pixels of a request, and of a panel at least
THICK = 0.85  # of a request's row


class Bar(NamedTuple):
    """A stretch of a request's time: what it was, and when it began and ended, in seconds."""

    kind: str
    began: float
    ended: float


def bars(row: Found) -> Iterator[Bar]:
    """What became of a request from its arrival to its end, without a gap."""
    at, stops = row["arrival_s"], [*row["preempted_s"], row["ended_s"]]
    for number, (admitted, stopped) in enumerate(zip(row["admitted_s"], stops, strict=True)):
        yield Bar("preempted" if number else "waiting", at, admitted)
        chunks = [chunk for chunk in row["chunks"] if admitted <= chunk[0] < stopped]
        filled = chunks[-1][1] if chunks else admitted
        yield Bar("prefill", admitted, filled)
        yield Bar("decode", filled, stopped)
        at = stopped


def _named(drawn: Sequence[tuple[int, Bar]]) -> Iterator[tuple[str, int, float, str]]:
    """Where in a panel the words of the colours stand: kind, row, seconds, and the side of the words that is there.

    Left of the request that waits longest, and right of the one that decodes longest, nothing else is drawn; above the
    last prefill only where the two requests before it have ended.
    """
    longest = {kind: max((each for each in drawn if each[1].kind == kind), key=_span, default=None) for kind in KINDS}
    if waits := longest["waiting"]:
        yield "waiting", waits[0], waits[1].began, "right"
    if decodes := longest["decode"]:
        yield "decode", decodes[0], decodes[1].ended, "left"
    for number, bar in reversed(drawn):
        above = [each for row, each in drawn if number - 3 < row < number]
        if bar.kind == "prefill" and above and max(each.ended for each in above) < bar.began:
            yield "prefill", number - 1, (bar.began + bar.ended) / 2, "center"
            return


def _span(each: tuple[int, Bar]) -> float:
    return each[1].ended - each[1].began


def gantt_figure(policies: Sequence[Found]) -> go.Figure:
    """Draw the requests of each policy in order of arrival, all to the end of the slowest."""
    shown = [[row for row in policy["each"] if row["state"] == "done"] for policy in policies]
    titles = [f"<b>{as_text(policy['title'])}</b>: {mark(policy)}{policy['seconds']:.3g} s" for policy in policies]
    high, above = max(LEAST, ROW * max(map(len, shown))), 14 + 2 * LINE
    area = len(policies) * high + (len(policies) - 1) * above
    figure = make_subplots(
        len(policies), 1, shared_xaxes="all", subplot_titles=titles, vertical_spacing=above / area if shown[1:] else 0
    )
    for place, rows in enumerate(shown, 1):
        drawn = [(row["number"], bar) for row in rows for bar in bars(row) if bar.ended > bar.began]
        for kind, (words, colour) in KINDS.items():
            own = [(number, bar) for number, bar in drawn if bar.kind == kind]
            spans = [bar.ended - bar.began for _, bar in own]
            says = [f"request {number}: {words} for {span:.3g} s" for (number, _), span in zip(own, spans, strict=True)]
            look: dict[str, Any] = {
                "marker": {"color": colour, "line_width": 0},
                "hovertemplate": "%{text}<extra></extra>",
            }
            where = {
                "base": [bar.began for _, bar in own],
                "y": [number for number, _ in own],
                "orientation": "h",
                "width": THICK,
            }
            figure.add_bar(x=spans, text=says, textposition="none", name=words, row=place, col=1, **where, **look)
        for kind, number, at, side in _named(drawn) if place == 1 else ():
            colour = INK if kind == "waiting" else KINDS[kind][1]  # its own is too pale for words
            look = {"font": {"size": 12, "color": colour}, "xanchor": side, "showarrow": False}
            figure.add_annotation(text=kind, x=at, y=number, row=place, col=1, **look)
    for title in figure.layout.annotations[: len(policies)]:
        title.update(font_size=13, font_color=INK, align="left", xanchor="left", x=0, yshift=7)
    room = {"l": 16, "r": 12, "t": above, "b": 52}
    figure.update_layout(barmode="overlay", height=area + room["t"] + room["b"], margin=room)
    figure.update_layout(font_size=13, showlegend=False, plot_bgcolor=GROUND)
    last = max((policy["seconds"] for policy in policies), default=0)
    figure.update_xaxes(range=[0, 1.02 * last]).update_yaxes(title="request", autorange="reversed", nticks=4)
    return figure.update_xaxes(title="seconds", title_standoff=4, row=len(policies), col=1)
