"""Draws the figures of the caches page from a race's document."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from kvviz.base.words import human
from kvviz.charts import palette
from kvviz.charts.layout import LEGEND
from kvviz.charts.memory import unit_for
from kvviz.experiments.cache_designs.words import KL_ROUNDING, mean

Runs = Sequence[Mapping[str, Any]]

# Each measure over the steps: its title, and how to read a run's bytes at each step (None if not counted).
MEASURES: dict[str, tuple[str, Callable[[Mapping[str, Any]], Sequence[int] | None]]] = {
    "allocated": ("Allocated", lambda run: run["allocated_bytes"]),
    "held": ("Held", lambda run: run["cache_bytes"]),
    "wasted": (
        "Wasted",
        lambda run: [a - h for a, h in zip(run["allocated_bytes"], run["cache_bytes"], strict=True)],
    ),
    "copied": ("Copied a step", lambda run: run["books"] and run["books"]["copied"]),
    "gathered": ("Gathered a step", lambda run: run["books"] and run["books"]["gathered"]),
}


def bytes_figure(runs: Runs, measure: str) -> go.Figure:
    """Draw the bytes at each step, with a line for each run that keeps a cache."""
    title, read = MEASURES[measure]
    kept = [(run, read(run)) for run in runs if run["quality"] is not None]
    lines = [(run, values) for run, values in kept if values is not None]
    unit, size = unit_for(max((max(values) for _, values in lines), default=0))
    figure = go.Figure()
    for run, values in lines:
        figure.add_trace(
            go.Scatter(
                x=list(range(1, len(values) + 1)),
                y=[value / size for value in values],
                name=run["title"],
                mode="lines",
                line={"color": palette.LIGHT[run["mode"]], "width": 2.5, "dash": palette.DASH[run["mode"]]},
                customdata=[human(value) for value in values],
                hovertemplate="%{customdata}",
            )
        )
    return _laid(figure, "new token", f"{title.lower()}, {unit}", 400).update_layout(hovermode="x unified")


def _laid(figure: go.Figure, x: str, y: str, height: int) -> go.Figure:
    return figure.update_layout(
        font_size=14,
        height=height,
        legend=LEGEND,
        margin={"l": 10, "r": 10, "t": 30, "b": 10},
        xaxis={"title": x, "automargin": True},
        yaxis={"title": y, "automargin": True, "rangemode": "tozero"},
    )


def kl_figure(runs: Runs) -> go.Figure:
    """Draw KL(reference || design) after each token on a logarithmic axis; a line begins at its first lossy token."""
    figure = go.Figure()
    for run in _lossy(runs):
        values = run["quality"]["kl"]
        figure.add_trace(
            go.Scatter(
                x=list(range(1, len(values) + 1)),
                y=[value if value >= KL_ROUNDING else None for value in values],
                name=run["title"],
                mode="lines+markers",
                line={"color": palette.LIGHT[run["mode"]], "width": 1.5, "dash": palette.DASH[run["mode"]]},
                marker={"symbol": palette.MARKER[run["mode"]], "size": 5},
                hovertemplate=f"{run['title']}, token %{{x}}: %{{y:.2g}} nats<extra></extra>",
            )
        )
    _laid(figure, "token of the text", "KL, nats", 400)
    longest = max((len(run["quality"]["kl"]) for run in runs if run["quality"]), default=1)
    powers = [10.0**power for power in range(-9, 4, 2)]
    figure.update_yaxes(type="log", tickvals=powers, ticktext=[_power(tick) for tick in powers])
    return figure.update_xaxes(range=[0, longest + 1])


def _lossy(runs: Runs) -> list[Mapping[str, Any]]:
    return [run for run in runs if run["quality"] and max(run["quality"]["kl"]) >= KL_ROUNDING]


def quality_figure(runs: Runs) -> go.Figure:
    """Draw the mean KL against the bytes held at the end of the text: a point per design, one label for equal points.

    A logarithmic axis has no 0, so exact designs lie on a line below all others, labelled 0.
    """
    kept = [run for run in runs if run["quality"] is not None]
    lost = [mean(run["quality"]["kl"]) for run in _lossy(kept)]
    top = math.ceil(math.log10(max(lost))) if lost else 0
    bottom = math.floor(math.log10(min(lost))) - 1 if lost else -3
    unit, size = unit_for(max(run["quality"]["nbytes"] for run in kept))
    places: dict[tuple[float, float], list[Mapping[str, Any]]] = {}
    for run in kept:
        kl = mean(run["quality"]["kl"])
        place = (run["quality"]["nbytes"] / size, kl if run in _lossy(kept) else 10.0**bottom)
        places.setdefault(place, []).append(run)
    figure = go.Figure()
    widest = max(x for x, _ in places)
    for (x, y), members in places.items():
        figure.add_trace(_point(x, y, members, right=x < widest / 2))
    ticks = [10.0**power for power in range(bottom, top + 1, max(1, (top - bottom) // 6))]
    _laid(figure, f"held at the end of the text, {unit}", "mean KL, nats", 420).update_layout(showlegend=False)
    figure.update_xaxes(range=[0, 1.08 * widest])
    return figure.update_yaxes(
        type="log",
        range=[bottom - 0.6, top + 0.4],
        tickvals=ticks,
        ticktext=["0", *(_power(tick) for tick in ticks[1:])],
    )


def _power(tick: float) -> str:
    return f"{tick:g}" if tick >= 1e-3 else f"10<sup>{round(math.log10(tick))}</sup>"


def _label(members: Runs) -> str:
    """Label the designs at one point: up to two by name, more by number, to fit a narrow screen."""
    if len(members) <= 2:
        return "<br>".join(run["title"] for run in members)
    exact = sum(run["exact"] and run["mode"] != "cached" for run in members)
    return f"{exact} exact designs and the reference" if exact == len(members) - 1 else f"{len(members)} designs"


def _point(x: float, y: float, members: Runs, *, right: bool) -> go.Scatter:
    first = members[0]
    told = "<br>".join(
        f"<b>{run['title']}</b>: {human(run['quality']['nbytes'])}, KL {mean(run['quality']['kl']):.2g}, "
        f"perplexity {run['quality']['perplexity']:.4g}"
        for run in members
    )
    return go.Scatter(
        x=[x],
        y=[y],
        mode="markers+text",
        marker={"symbol": palette.MARKER[first["mode"]], "size": 14, "color": palette.LIGHT[first["mode"]]},
        text=[_label(members)],
        textposition="middle right" if right else "top left",
        hovertemplate=f"{told}<extra></extra>",
    )
