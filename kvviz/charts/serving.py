"""Draws many requests that share a memory: what it holds, in all and tick by tick, and what a preemption costs."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import plotly.graph_objects as go

from kvviz.charts import palette
from kvviz.charts.layout import INK, as_text, blank, name_at_edge
from kvviz.charts.panels import Panel, Part, panels_figure
from kvviz.experiments.batching.timeline import Return

PARTS = {
    "used": ("tokens", palette.KEPT),
    "internal": ("taken and empty", palette.WASTED),
    "external": ("free, but in holes too small", palette.GIVEN_UP),
}
FREE = ("free", "#C9D0D8")  # the rest, so that the parts of a memory make up the whole
Found = Mapping[str, Any]
LEGIBLE = 4  # % of the memory: a smaller part has no room for its figure
NEAR = 0.9  # of the most tokens: a rule's name stands beside its steps with so many


def shares_figure(ways: Sequence[Found]) -> go.Figure:
    """Draw what the whole memory holds under each policy as a bar of 100%: means over the ticks at which some wait."""
    ways = [way for way in ways if way["used_share_while_some_wait"] is not None]
    titles = [as_text(way["title"]) for way in ways]
    figure = blank("% of the memory", "", barmode="stack", showlegend=False, height=90 + 44 * len(ways), margin_t=0)
    shares = {name: [100 * way[f"{name}_share_while_some_wait"] for way in ways] for name in PARTS}
    rest = [100 - sum(each) for each in zip(*shares.values(), strict=True)]
    for values, (name, colour) in zip([*shares.values(), rest], [*PARTS.values(), FREE], strict=True):
        said = [f"{value:.0f}%" if value >= LEGIBLE else "" for value in values]
        ink = INK if name == FREE[0] else palette.ON_PALE if name == "taken and empty" else palette.ON_DEEP
        look = {"marker": {"color": colour, "line_width": 0}, "textfont": {"color": ink}, "textposition": "inside"}
        words = f"{name}: %{{x:.1f}}%<extra></extra>"
        figure.add_bar(x=values, y=titles, orientation="h", name=name, text=said, hovertemplate=words, **look)
    figure.update_yaxes(autorange="reversed", showgrid=False, automargin=True, rangemode="normal")
    return figure.update_xaxes(range=[0, 100], showgrid=False)


def waste_figure(ways: Sequence[Found], slots: int, last: int) -> go.Figure:
    """Draw the memory of policies over time in slots, one below another: tokens, and what is wasted of it.

    `last`: the tick at which the axis ends, the same for every policy.
    """
    panels = [
        Panel(way["title"], [Part(title, colour, way["ticks"][part]) for part, (title, colour) in PARTS.items()])
        for way in ways
    ]
    figure = panels_figure(panels, "time step", "slots", most=slots, last=last, rows=len(panels))
    return figure.add_hline(y=slots, line={"color": "#888888", "width": 1, "dash": "dot"}, row="all", col="all")


def returns_figure(found: Mapping[str, tuple[Sequence[Return], str]]) -> go.Figure:
    """Draw each step with returns from a preemption over the tokens of a return: how much longer each made it.

    `found` maps a rule's name to such steps and to its colour. Steps with a new prompt are drawn hollow.
    """
    figure = blank("tokens of a request that returns", "ms longer for each return", height=330)
    drawn = [_each_ms(one) for steps, _ in found.values() for one in steps]
    names = []
    for name, (steps, colour) in found.items():
        hollow = [one.beside for one in steps]
        look: dict[str, object] = {"color": colour, "size": 13, "line": {"width": 1.5, "color": colour}}
        look["symbol"] = ["circle-open" if each else "circle" for each in hollow]
        look["opacity"] = [1.0 if each else 0.6 for each in hollow]
        x, y = [one.tokens / one.requests for one in steps], [_each_ms(one) for one in steps]
        words = f"{name}: %{{customdata}} of %{{x:.3g}} tokens, %{{y:.2g}} ms longer for each<extra></extra>"
        back = [one.requests for one in steps]
        figure.add_scatter(x=x, y=y, mode="markers", marker=look, name=name, customdata=back, hovertemplate=words)
        names.append((name, colour, median(height for at, height in zip(x, y, strict=True) if at >= NEAR * max(x))))
    low, high = min(0.0, *drawn), max(drawn)
    name_at_edge(figure, names, (low, high))
    below = {"text": "0: a step without a return", "font": {"size": 13, "color": INK}, "showarrow": False}
    figure.add_annotation(x=0, xref="paper", y=low, xanchor="left", yshift=-13, **below)
    figure.update_yaxes(range=[low - 0.12 * (high - low), 1.06 * high], zeroline=True, zerolinecolor=INK)
    tokens = [one.tokens / one.requests for steps, _ in found.values() for one in steps]
    return figure.update_xaxes(range=[0.8 * min(tokens), 1.04 * max(tokens)], showgrid=False)


def _each_ms(step: Return) -> float:
    """The milliseconds by which each return made its step longer."""
    return 1e3 * (step.more_s or 0.0) / step.requests
