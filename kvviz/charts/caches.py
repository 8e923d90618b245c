"""Draws the figures of the caches page from a race's document."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from statistics import fmean, quantiles
from typing import Any

import plotly.graph_objects as go

from kvviz.base.words import aligned_millis, human
from kvviz.charts import palette
from kvviz.charts.layout import INK, blank, glossed, name_ends, named_rows, small_print
from kvviz.charts.memory import unit_for
from kvviz.charts.panels import Panel, Part, panels_figure
from kvviz.experiments.cache_designs.words import KL_ROUNDING, nats

Run = Mapping[str, Any]
Runs = Sequence[Run]
Key = Sequence[tuple[str, str]]  # what is drawn, and its colour

HELD = ("tokens", palette.KEPT), ("taken and empty: wasted", palette.WASTED)
WRITTEN = (("written into the cache", palette.NEW),)
MOVED = (*WRITTEN, ("gathered for attention by our simple code, where a real kernel reads in place", palette.FREE))
DRIFT = "how far predictions drift<br>(mean KL divergence, nats)"
_ON_PAPER = {"bgcolor": palette.PAPER, "borderpad": 0, "showarrow": False}
_WIDE = {"xaxis_automargin": True, "yaxis_automargin": True}


def held_figures(rows: Runs) -> list[go.Figure]:
    """Draw what each design holds and wastes at each step, a panel for each, in the colours of HELD."""
    kept = [row for row in rows if row["quality"] is not None]
    columns = [(row["cache_bytes"], _wasted(row)) for row in kept]
    says = [f"{row['empty_share']:.0%} of the area empty" if row["most_wasted"] else "nothing empty" for row in kept]
    return _panels(kept, columns, says, HELD)


def written_figures(rows: Runs) -> list[go.Figure]:
    """Draw what each design writes at each step, in the colour of WRITTEN; of transformers' own it is not counted."""
    kept = [row for row in rows if row["books"]]
    columns = [(row["books"]["copied"],) for row in kept]
    says = [f"last step writes {human(row['copied'])}" for row in kept]
    return _panels(kept, columns, says, WRITTEN)


def _wasted(run: Run) -> list[int]:
    return [a - h for a, h in zip(run["allocated_bytes"], run["cache_bytes"], strict=True)]


def _panels(rows: Runs, columns: Sequence[Sequence[Sequence[int]]], says: Sequence[str], parts: Key) -> list[go.Figure]:
    """Two figures to stand beside one another, their panels in order from left to right over both.

    The unit stands at each axis, and in the names of the parts for who reads them without one.
    """
    highest = max((sum(values) for column in columns for values in zip(*column, strict=True)), default=1)
    unit, size = unit_for(highest)
    measured = [(f"{name} ({unit})", colour) for name, colour in parts]
    panels = []
    for row, column, said in zip(rows, columns, says, strict=True):
        stacked = [
            Part(name, colour, [value / size for value in values])
            for (name, colour), values in zip(measured, column, strict=True)
        ]
        panels.append(Panel(row["title"], stacked, f"{small_print(row.get('gloss', ''))}<br>{said}"))
    last = max((len(column[0]) for column in columns), default=1)
    sides = [[panel for i, panel in enumerate(panels) if i // 2 % 2 == side] for side in (0, 1)]
    most, down = highest / size or 1, -(-len(sides[0]) // 2)
    draw = partial(panels_figure, x="new token", most=most, last=last, rows=down, across=2, measure=unit)
    return [draw(side) for side in sides if side]


def moves_figures(rows: Runs) -> list[go.Figure]:
    """Draw what each cache moves at its last step, and its median decode step with the middle half of its steps."""
    timed = [row for row in reversed(rows) if len(row["step_s"]) > 2 and row["held"]]
    quartiles = [[1e3 * second for second in quantiles(row["step_s"][1:], n=4)] for row in timed]
    names, moved = [row["title"] for row in timed], [(row["copied"] or 0, row["gathered"] or 0) for row in timed]
    unit, size = unit_for(max(map(max, moved), default=1))
    look = {"height": 70 + 40 * len(timed), "showlegend": False, **_WIDE}
    bytes_, steps = (
        blank(f"written and gathered at the last step, {unit}", "", barmode="stack", **look),
        blank("a step, ms: median and quartiles", "", **look),
    )
    for part, (name, colour) in enumerate(MOVED):
        said = f"%{{y}}: %{{x:,.4~g}} {unit} {name}<extra></extra>"
        lengths = [parts[part] / size for parts in moved]
        hatched = ["/" if row["mode"] == "cached" else "" for row in timed]  # its count is taken over from another
        filled = {"color": colour, "pattern": {"shape": hatched, "fillmode": "replace", "solidity": 0.45}}
        bytes_.add_bar(x=lengths, y=names, orientation="h", name=name, marker=filled, hovertemplate=said)
    for row, parts, (low, middle, high) in zip(timed, moved, quartiles, strict=True):
        known = " + ".join(f"{part / size:,.4g}" for part in parts if part)
        known = "not counted" if row["copied"] is None else known or "0"
        beside = {"y": row["title"], "xanchor": "left", "xshift": 8, **_ON_PAPER}
        bytes_.add_annotation(text=known, x=sum(parts) / size, **beside)
        spread = {"array": [high - middle], "arrayminus": [middle - low], "color": palette.KEPT}
        marker = {"size": 9, "color": palette.KEPT}  # one for all: the row names its design
        words = {"hovertemplate": "%{y}: %{x:.3g} ms<extra></extra>", "name": row["title"]}
        steps.add_scatter(x=[middle], y=[row["title"]], error_x=spread, mode="markers", marker=marker, **words)
        steps.add_annotation(text=aligned_millis(middle / 1e3, 2), x=high, **beside)
    slowest = max((high for _, _, high in quartiles), default=1.0)
    for figure, most in ((bytes_, 1.6 * max(map(sum, moved), default=1) / size), (steps, 1.4 * slowest)):
        figure.update_xaxes(range=[0, most or 1])  # a narrow screen has room for the words beside a bar
        figure.update_yaxes(range=[-0.6, len(timed) - 0.4], ticksuffix="  ", showgrid=False)  # rows side by side
    bytes_.update_yaxes(**named_rows(timed))
    steps.update_xaxes(showgrid=True)
    steps.update_yaxes(showgrid=True)  # a dot stands far from its name
    return [bytes_, steps]


def kl_figure(runs: Runs) -> go.Figure:
    """Draw the mean KL(reference || design) so far on a logarithmic axis; a line begins at its first lossy token."""
    figure = blank("token of the text", "mean KL so far, nats", height=420, **_WIDE)
    for run in _lossy(runs):
        sums = accumulate(run["quality"]["kl"])
        means = [total / count for count, total in enumerate(sums, 1)]
        y = [mean if mean >= KL_ROUNDING else None for mean in means]
        words = f"{run['title']}, token %{{x}}: %{{y:.2g}} nats<extra></extra>"
        look = {"mode": "lines", "line": palette.line(run["mode"]), "hovertemplate": words}
        figure.add_scatter(x=list(range(1, len(y) + 1)), y=y, name=run["title"], **look)
    powers = [10.0**power for power in range(-9, 4, 2)]
    figure.update_yaxes(type="log", tickvals=powers, ticktext=[_power(tick) for tick in powers])
    return name_ends(figure)


def _lossy(runs: Runs) -> list[Run]:
    return [run for run in runs if run["quality"] and max(run["quality"]["kl"]) >= KL_ROUNDING]


def quality_figure(runs: Runs) -> go.Figure:
    """Draw the mean KL against the bytes held at the end of the text: a point per design, one label for equal points.

    A logarithmic axis has no 0, so it ends above a band of its own for those that lose nothing. A line from a lossy
    design leads to the full cache's bytes; the label where it begins says what share it saves.
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
    ticks = [10.0**power for power in range(bottom, top + 1, max(1, (top - bottom) // 6))]
    words = ["no drift", *(_power(tick) for tick in ticks[1:])]
    figure = blank(f"held at the end of the text, {unit}", DRIFT, height=380, showlegend=False, **_WIDE)
    figure.update_xaxes(range=[0, 1.08 * widest])
    reach = [bottom - 0.6, top + 0.4 + (top - bottom) / 6]  # above: room for a label
    figure.update_yaxes(type="log", range=reach, tickvals=ticks, ticktext=words, showgrid=False, ticks="outside")
    low, edge = 10.0 ** (bottom - 0.6), 10.0 ** (bottom + 0.5)
    figure.add_hrect(y0=low, y1=edge, fillcolor=palette.FREE, opacity=0.15, line_width=0, layer="below")
    scale = {"x0": 0, "x1": 0, "xref": "paper", "y0": edge, "y1": 10.0 ** reach[1], "line": {"color": INK, "width": 1}}
    full = next((run["quality"]["nbytes"] for run in kept if run["mode"] == "cached"), 0)
    thin = {"line": {"color": palette.FREE, "width": 1, "dash": "dot"}, "layer": "below"}
    if lossy:
        figure.add_shape(type="line", **scale)
        figure.update_layout(margin_pad=0).update_yaxes(tickcolor=INK)  # the ticks stand at their line
    if full and lossy:
        figure.add_vline(x=full / size, **thin)
    for (x, y), members in places.items():
        saved = max(0.0, 1 - members[0]["quality"]["nbytes"] / full) if full and members[0] in lossy else 0.0
        if saved > 0.01:
            figure.add_shape(type="line", x0=x, x1=full / size, y0=y, y1=y, **thin)
        figure.add_trace(_point(x, y, members))
        label = _beside(right=x < widest / 2, stem=members[0] in lossy)
        figure.add_annotation(text=_label(members, saved), x=x, y=math.log10(y), **label)
    return figure


def _power(tick: float) -> str:
    power = round(math.log10(tick))
    return f"10<sup>{power}</sup>" if power else "1"


def _label(members: Runs, saved: float) -> str:
    """Label the designs at one point: up to two by name, with their loss and the share of the full cache's bytes that
    they save; more by number, to fit a narrow screen.
    """
    if len(members) > 2:
        return f"{len(members)} exact caches"
    lost = fmean(members[0]["quality"]["kl"])
    drifts = [nats(lost) + (f", <b>saves {saved:.0%}</b>" if saved > 0.01 else "")] if lost >= KL_ROUNDING else []
    return "<br>".join([*map(glossed, members), *drifts])


def _beside(*, right: bool, stem: bool) -> dict[str, Any]:
    """Place a label beside its mark: above the line that begins there, if one does, else in the grey band."""
    where = {"xanchor": "left" if right else "right", "xshift": 9 if right else -9, "showarrow": False}
    above = {"yanchor": "bottom", "yshift": 2, "align": "left" if right else "right", **_ON_PAPER}
    return where | (above if stem else {"yanchor": "middle"})


def _point(x: float, y: float, members: Runs) -> go.Scatter:
    told = "<br>".join(
        f"<b>{run['title']}</b>: {human(run['quality']['nbytes'])}, KL {fmean(run['quality']['kl']):.2g}, "
        f"perplexity {run['quality']['perplexity']:.4g}"
        for run in members
    )
    marker = {"size": 13, "color": palette.KEPT}  # one for all: a name stands beside each
    words = {"name": ", ".join(run["title"] for run in members), "hovertemplate": f"{told}<extra></extra>"}
    return go.Scatter(x=[x], y=[y], mode="markers", marker=marker, **words)
