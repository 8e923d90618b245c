"""Draws the figures of the caches page from a race's document."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

import plotly.graph_objects as go

from kvviz.base.words import human
from kvviz.charts import palette
from kvviz.charts.layout import blank
from kvviz.charts.memory import unit_for
from kvviz.experiments.cache_designs.words import KL_ROUNDING

Run = Mapping[str, Any]
Runs = Sequence[Run]

# Each measure over the steps: its title, and how to read a run's bytes at each step (None if not counted).
MEASURES: dict[str, tuple[str, Callable[[Run], Sequence[int] | None]]] = {
    "allocated": ("Allocated", lambda run: run["allocated_bytes"]),
    "held": ("Held", lambda run: run["cache_bytes"]),
    "wasted": ("Wasted", lambda run: [a - h for a, h in zip(run["allocated_bytes"], run["cache_bytes"], strict=True)]),
    "copied": ("Copied a step", lambda run: run["books"] and run["books"]["copied"]),
    "gathered": ("Gathered a step", lambda run: run["books"] and run["books"]["gathered"]),
}
_WIDE = {"xaxis_automargin": True, "yaxis_automargin": True}


def bytes_figure(runs: Runs, measure: str) -> go.Figure:
    """Draw the bytes at each step of each run that keeps a cache; runs with the same bytes share a line."""
    title, read = MEASURES[measure]
    kept = [(run, read(run)) for run in runs if run["quality"] is not None]
    lines = [(run, values) for run, values in kept if values is not None]
    unit, size = unit_for(max((max(values) for _, values in lines), default=0))
    figure = blank("new token", f"{title.lower()}, {unit}", height=400, hovermode="x unified", **_WIDE)
    alike: dict[tuple[int, ...], list[Run]] = {}
    for run, values in lines:
        alike.setdefault(tuple(values), []).append(run)
    for values, same in alike.items():
        x, y = list(range(1, len(values) + 1)), [value / size for value in values]
        words = {"customdata": [human(value) for value in values], "hovertemplate": "%{customdata}"}
        name, line = " = ".join(run["title"] for run in same), palette.line(same[0]["mode"])
        figure.add_scatter(x=x, y=y, name=name, mode="lines", line=line, **words)
    return figure


def kl_figure(runs: Runs) -> go.Figure:
    """Draw KL(reference || design) after each token on a logarithmic axis; a line begins at its first lossy token."""
    figure = blank("token of the text", "KL, nats", height=400, **_WIDE)
    for run in _lossy(runs):
        values = run["quality"]["kl"]
        x, y = list(range(1, len(values) + 1)), [value if value >= KL_ROUNDING else None for value in values]
        words = f"{run['title']}, token %{{x}}: %{{y:.2g}} nats<extra></extra>"
        marker = {"symbol": palette.MARKER[run["mode"]], "size": 5}
        line = {"line": palette.line(run["mode"], 1.5), "marker": marker}
        figure.add_scatter(x=x, y=y, name=run["title"], mode="lines+markers", hovertemplate=words, **line)
    longest = max((len(run["quality"]["kl"]) for run in runs if run["quality"]), default=1)
    powers = [10.0**power for power in range(-9, 4, 2)]
    figure.update_yaxes(type="log", tickvals=powers, ticktext=[_power(tick) for tick in powers])
    return figure.update_xaxes(range=[0, longest + 1])


def _lossy(runs: Runs) -> list[Run]:
    return [run for run in runs if run["quality"] and max(run["quality"]["kl"]) >= KL_ROUNDING]


def quality_figure(runs: Runs) -> go.Figure:
    """Draw the mean KL against the bytes held at the end of the text: a point per design, one label for equal points.

    A logarithmic axis has no 0, so exact designs lie on a line below all others, labelled 0.
    """
    kept = [run for run in runs if run["quality"] is not None]
    lossy = _lossy(kept)
    lost = [fmean(run["quality"]["kl"]) for run in lossy]
    top = math.ceil(math.log10(max(lost))) if lost else 0
    bottom = math.floor(math.log10(min(lost))) - 1 if lost else -3
    unit, size = unit_for(max(run["quality"]["nbytes"] for run in kept))
    places: dict[tuple[float, float], list[Run]] = {}
    for run in kept:
        height = fmean(run["quality"]["kl"]) if run in lossy else 10.0**bottom
        places.setdefault((run["quality"]["nbytes"] / size, height), []).append(run)
    widest = max(x for x, _ in places)
    points = [_point(x, y, members, right=x < widest / 2) for (x, y), members in places.items()]
    ticks = [10.0**power for power in range(bottom, top + 1, max(1, (top - bottom) // 6))]
    words = ["0", *(_power(tick) for tick in ticks[1:])]
    figure = blank(f"held at the end of the text, {unit}", "mean KL, nats", height=420, showlegend=False, **_WIDE)
    figure.update_xaxes(range=[0, 1.08 * widest])
    figure.update_yaxes(type="log", range=[bottom - 0.6, top + 0.4], tickvals=ticks, ticktext=words)
    return figure.add_traces(points)


def _power(tick: float) -> str:
    return f"{tick:g}" if tick >= 1e-3 else f"10<sup>{round(math.log10(tick))}</sup>"


def _label(members: Runs) -> str:
    """Label the designs at one point: up to two by name, more by number, to fit a narrow screen."""
    if len(members) <= 2:
        return "<br>".join(run["title"] for run in members)
    exact = sum(run["exact"] and run["mode"] != "cached" for run in members)
    return f"{exact} exact designs and the reference" if exact == len(members) - 1 else f"{len(members)} designs"


def _point(x: float, y: float, members: Runs, *, right: bool) -> go.Scatter:
    mode, where = members[0]["mode"], "middle right" if right else "top left"
    told = "<br>".join(
        f"<b>{run['title']}</b>: {human(run['quality']['nbytes'])}, KL {fmean(run['quality']['kl']):.2g}, "
        f"perplexity {run['quality']['perplexity']:.4g}"
        for run in members
    )
    marker = {"symbol": palette.MARKER[mode], "size": 14, "color": palette.LIGHT[mode]}
    words = {"text": [_label(members)], "textposition": where, "hovertemplate": f"{told}<extra></extra>"}
    return go.Scatter(x=[x], y=[y], mode="markers+text", marker=marker, **words)
