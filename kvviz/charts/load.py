"""Draws a load sweep: what is completed at each rate and how long it takes, and a decode step by its sequences."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from kvviz.base.words import millis
from kvviz.charts import palette
from kvviz.charts.layout import add_notes, blank, log_ticks, name_at_edge, name_ends
from kvviz.charts.panels import ticks_to
from kvviz.experiments.comparison.figures import tail
from kvviz.experiments.load.figures import counts, decided, early, goodput, wait_s

Found = Mapping[str, Any]
PREDICTED, LIMIT = palette.REFERENCE, "#9A4B7D"
RANKS = ((50, 3), (99, 1.5))  # percentiles of a wait, and the pixels of their lines
FORETOLD = {"color": PREDICTED, "width": 2, "dash": "dot"}
HEIGHT = 320
LOW = 275  # of the two figures that a small screen shows at once
CLOSE = 0.9  # of what is completed: no room for a number between the lines
RATE = "requests offered a second"
KNEE = "knee"  # it lies between the last rate at which the queue stays level and the first at which it grows
SIDES = {"l": 80, "r": 96}  # pixels beside the two figures that stand side by side, whatever their labels
LETTER = 0.03  # of the axis: what a letter of a name takes on a phone


def throughput_figure(found: Found, ttft_s: float | None = None, itl_s: float | None = None) -> go.Figure:
    """Draw the completed requests at each rate against the offered ones; the highest point has its value.

    With limits, draw also what keeps to both and what the cost model predicts.
    """
    points = found["rows"]
    lines: list[dict[str, Any]] = []
    x = [p["rate"] for p in points]
    completed, good = [p["completed_per_s"] for p in points], list[float]()
    foretold = list[Found]()
    if ttft_s is not None and itl_s is not None:
        good = [goodput(p, ttft_s, itl_s) for p in points]
        foretold = [p for p in points if p["predicted"]]
    for rows, y, title, line in (
        (points, x, "offered", {"color": PREDICTED, "width": 2, "dash": "dash"}),
        (foretold, [p["predicted"]["completed_per_s"] for p in foretold], "predicted", FORETOLD),
        (points, completed, "completed", {"color": palette.KEPT, "width": 3}),
        (points, good, "goodput", {"color": palette.NEW, "width": 3}),
    ):
        if y or y is completed:
            lines.append(_line(rows, y, title, line))
    axes = {"yaxis_range": [0, 1.05 * max(x, default=1)]}
    figure = name_ends(blank(RATE, "requests a second", lines, height=LOW, hovermode="x unified", **axes))
    notes = []
    tops = [max(values, default=0) for values in (completed, good)]
    for top, values, colour in zip(tops, (completed, good), (palette.KEPT, palette.NEW), strict=True):
        if top:
            at = values.index(top)
            label = {"text": f"<b>{top:.3g}</b>", "font_color": colour, "showarrow": False}
            below = top > CLOSE * tops[0] if values is good else not good or good[at] < tops[1]
            side = {"yanchor": "top", "yshift": -4} if below else {"yanchor": "bottom", "yshift": 2}
            notes.append({"x": x[at], "y": top, **label, **side})
    add_notes(figure, notes)
    return _shade(figure, points, named=True)


def waits_figure(found: Found) -> go.Figure:
    """Draw how long half of the requests wait for their first token at each rate, and 99 of a hundred, or all; the
    waits at the last rate have their values.
    """
    points = [p for p in found["rows"] if wait_s(p, "ttft", 99)]
    lines = []
    for percent, width in RANKS:
        waits = [1e3 * (wait_s(p, "ttft", percent) or 0) for p in points]
        lines.append(_waits(points, waits, "ttft", percent, width))
    look = {"height": LOW, "hovermode": "x unified"}
    if not points:
        return blank(RATE, "first token (TTFT), ms", lines, **look)
    high = 1.25 * max(waits)  # room for the last figure below the names of the zones
    half, slow = (line["y"][-1] for line in lines)
    above = {"font_color": palette.KEPT, "showarrow": False, "xanchor": "right", "yanchor": "bottom"}
    ends = (half, slow) if half < CLOSE * slow else (slow,)
    notes = [{"text": f"<b>{millis(wait / 1e3)}</b>", "x": points[-1]["rate"], "y": wait, **above} for wait in ends]
    if found_early := early(points):
        wait = wait_s(found_early[1], "ttft", 99) or 0.0
        notes.append({"text": f"<b>{millis(wait, 2)}</b>", "x": found_early[1]["rate"], "y": 1e3 * wait, **above})
    figure = blank(RATE, "first token (TTFT), ms", lines, annotations=notes, yaxis_range=[0, high], **look)
    name_at_edge(figure, [(line["name"], palette.KEPT, line["y"][-1]) for line in lines], (0, high))
    return _shade(figure, found["rows"], named=True)


def latency_figure(found: Found, name: str, limit_s: float) -> go.Figure:
    """Draw a wait's p50 and p99 over the requests of each rate, and the reader's own limit.

    `name` is "ttft", or "itl" for a request's mean ITL, to which the limit applies; it has no prediction.
    """
    points = [p for p in found["rows"] if wait_s(p, name, 99)]
    foretold = [p for p in points if p["predicted"]] if name == "ttft" else []
    lines = []
    if foretold or not points:
        waits = [1e3 * p["predicted"]["ttft_s_p99"] for p in foretold]
        lines.append(_line(foretold, waits, "predicted", FORETOLD, " ms"))
    for percent, width in RANKS:
        waits = [1e3 * wait for p in points if (wait := wait_s(p, name, percent))]
        lines.append(_waits(points, waits, name, percent, width))
    limit = 1e3 * limit_s
    drawn = [value for line in lines for value in line["y"]]
    low, high = min([*drawn, limit]) / 1.5, max([*drawn, limit]) * 1.5
    axes = {"type": "log", "rangemode": "normal", "range": [math.log10(low), math.log10(high)], **log_ticks(low, high)}
    look = {f"yaxis_{part}": value for part, value in axes.items()}
    figure = blank(RATE, "ms, logarithmic", lines, height=HEIGHT, hovermode="x unified", **look)
    figure.add_hline(y=limit, line={"color": LIMIT, "width": 1.5, "dash": "dash"})
    ends = [(line["name"], line["line"]["color"], line["y"][-1]) for line in lines if line["y"]]
    name_at_edge(figure, [*ends, ("your limit", LIMIT, limit)], (low, high))
    return _shade(figure, points)


def _waits(points: Sequence[Found], ms: Sequence[float], name: str, percent: int, width: float) -> dict[str, Any]:
    """Draw the line of a wait's percentile; a p99 of fewer than 100 requests is the slowest: an open mark."""
    called = [tail(count) if percent == 99 else f"p{percent}" for count in counts(points, name)]
    title = called[-1] if called else f"p{percent}"
    line = _line(points, ms, title, {"color": palette.KEPT, "width": width}, " ms")
    return {**line, "marker_symbol": ["circle-open" if each == "slowest" else "circle" for each in called]}


def _line(points: Sequence[Found], y: Sequence[float], title: str, line: Found, unit: str = "") -> dict[str, Any]:
    """Draw a line over the rates of the points; one that was measured is whole, and has a mark at each."""
    mode, words = "lines" if "dash" in line else "lines+markers", f"{title} %{{y:.3g}}{unit}<extra></extra>"
    look = {"name": title, "mode": mode, "line": line, "marker_size": 7, "hovertemplate": words}
    look["cliponaxis"] = False  # a mark on the zero line is whole
    return {"x": [p["rate"] for p in points], "y": list(y), **look}


def _shade(figure: go.Figure, points: Sequence[Found], *, named: bool = False) -> go.Figure:
    """Let the axis begin at no requests, and shade where the queue grows without bound and where its knee lies.

    A `named` figure says so above; a name with little room stands a line higher than its neighbours.
    """
    last = 1.03 * max((p["rate"] for p in points), default=1)
    knee = decided(points)
    zones = [(0.0, knee.level, "keeps up", PREDICTED, 0.0)] if knee.level else []
    between = KNEE if knee.level and knee.growing else "undecided"
    zones += [(*knee.undecided, between, PREDICTED, 0.06)] if knee.undecided else []
    zones += [(knee.growing, last, "queue<br>grows", PREDICTED, 0.16)] if knee.growing else []
    shapes, notes, high = [], [], {"xref": "x", "y0": 0, "y1": 1, "yref": "y domain"}
    for x0, x1, words, colour, opacity in zones:
        fill = {"fillcolor": colour, "opacity": opacity, "line_width": 0, "layer": "below"}
        shapes.append({"type": "rect", "x0": x0, "x1": x1, **high, **fill})
        if named:
            label = {"text": words, "font_color": colour, "x": (x0 + x1) / 2, "showarrow": False}
            narrow = x1 - x0 < LETTER * max(map(len, words.split("<br>"))) * last
            notes.append({**label, "yref": "paper", "y": 1, "yanchor": "bottom", "yshift": 16 if narrow else 0})
    figure.layout.shapes += tuple(shapes)
    add_notes(figure, notes)
    if named and zones:
        figure.update_layout(margin={**SIDES, "t": 40})  # two lines of names above
    return figure.update_xaxes(range=[0, last], tickvals=ticks_to(last, fewest=3))


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
    if len(rows) > 1:
        times = f"<b>{rows[-1]['s'] / rows[0]['s']:.2g}×</b>"
        place = {"x": xs[-1], "y": 1e3 * rows[-1]["s"], "yanchor": "bottom", "yshift": 4}
        figure.add_annotation(text=times, font_color=palette.KEPT, showarrow=False, **place)
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
