"""Draws many requests that share a memory: what it holds, in all and tick by tick, and what a preemption costs."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import plotly.graph_objects as go

from kvviz.charts import palette
from kvviz.charts.layout import INK, as_text, blank
from kvviz.charts.panels import Panel, Part, panels_figure
from kvviz.experiments.batching.words import SEVERAL, took

PARTS = {
    "used": ("tokens", palette.KEPT),
    "internal": ("taken and empty", palette.WASTED),
    "external": ("free, but in holes too small", palette.GIVEN_UP),
}
FREE = ("free", "#C9D0D8")  # the rest, so that the parts of a memory make up the whole
Found = Mapping[str, Any]
LEGIBLE = 4  # % of the memory: a smaller part has no room for its figure
CLOSE = 0.014  # of the axis: the points of two steps would cover one another
ASIDE, WIDEST = 0.26, 0.9  # of the distance between two rows: from a point to the next beside it, and of all in all


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


def returns_figure(found: Mapping[str, tuple[Sequence[float], Sequence[float], str]]) -> go.Figure:
    """Draw the seconds of each step with returns from a preemption as a point, a row for each rule.

    `found` maps a rule's name to the seconds that count, to those that don't, which are drawn hollow, and to its
    colour; the first stands on top. Points that would cover one another stand evenly about their row's middle.
    """
    most = max((each for counted, hollow, _ in found.values() for each in (*counted, *hollow)), default=0)
    figure = blank("ms from a return to the next token", "", height=230, showlegend=False, margin_t=0)
    for row, ((name, (seconds, hollow, colour)), above) in enumerate(zip(found.items(), (1, -1), strict=True)):
        words = f"{name}: %{{x:.3g}} ms<extra></extra>"
        look: dict[str, object] = {"color": colour, "size": 13, "line": {"width": 1.5, "color": colour}}
        look["symbol"] = ["circle"] * len(seconds) + ["circle-open"] * len(hollow)
        look["opacity"] = [0.55] * len(seconds) + [1.0] * len(hollow)
        ms = [1e3 * each for each in (*seconds, *hollow)]
        y = [row + aside for aside in _asides([*seconds, *hollow], CLOSE * most)]
        figure.add_scatter(x=ms, y=y, mode="markers", marker=look, name=name, hovertemplate=words)
        middle = {"x": 1e3 * median(seconds), "y": row}
        if len(seconds) >= SEVERAL:
            figure.add_annotation(text="|", font={"size": 26, "color": colour}, showarrow=False, **middle)
        words = f"<b>{took(seconds)}</b> ({len(seconds)} step{'s' * (len(seconds) > 1)})"
        side = "right" if median(seconds) > most / 2 else "left"  # so that a phone does not cut it off
        look = {"font_color": colour, "showarrow": False, "bgcolor": palette.PAPER, "borderpad": 0}  # over the grid
        figure.add_annotation(text=words, yshift=39 * above, xanchor=side, **look, **middle)
    rows = {"tickvals": list(range(len(found))), "ticktext": list(found)}
    figure.update_yaxes(**rows, range=[2, -1], rangemode="normal", showgrid=False, zeroline=False, tickfont_size=14)
    return figure.update_xaxes(range=[0, 1.05e3 * most], showgrid=True)


def _asides(seconds: Sequence[float], close: float) -> list[float]:
    """Return how far each point stands from its row's middle: points of which each is `close` to the next, evenly."""
    asides, groups = [0.0] * len(seconds), list[list[int]]()
    for place in sorted(range(len(seconds)), key=seconds.__getitem__):
        if groups and seconds[place] - seconds[groups[-1][-1]] < close:
            groups[-1].append(place)
        else:
            groups.append([place])
    for group in groups:
        step = min(ASIDE, WIDEST / len(group))
        for number, place in enumerate(group):
            asides[place] = step * (number - (len(group) - 1) / 2)
    return asides
