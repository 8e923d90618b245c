"""Draws the figures of the caches page from a race's document."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from statistics import fmean
from typing import Any, NamedTuple

import plotly.graph_objects as go

from kvviz.base.words import RAISED, aligned_millis, human
from kvviz.charts import palette
from kvviz.charts.layout import INK, blank, glossed, name_ends, named_rows, small_print
from kvviz.charts.memory import unit_for
from kvviz.charts.panels import Panel, Part, panels_figure
from kvviz.experiments.cache_designs.words import KL_ROUNDING, nats, quartiles

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
    return _panels(kept, columns, HELD, says)


def written_figures(rows: Runs) -> list[go.Figure]:
    """Draw what each design writes at each step, in the colour of WRITTEN; of transformers' own it is not counted."""
    kept = [row for row in rows if row["books"]]
    return _panels(kept, [(row["books"]["copied"],) for row in kept], WRITTEN)


def _wasted(run: Run) -> list[int]:
    return [a - h for a, h in zip(run["allocated_bytes"], run["cache_bytes"], strict=True)]


def _panels(
    rows: Runs, columns: Sequence[Sequence[Sequence[int]]], parts: Key, says: Sequence[str] = ()
) -> list[go.Figure]:
    """Two figures to stand beside one another, their panels in order from left to right over both.

    The unit stands at each axis, and in the names of the parts for who reads them without one; where a panel ends,
    the last value of its first part.
    """
    highest = max((sum(values) for column in columns for values in zip(*column, strict=True)), default=1)
    unit, size = unit_for(highest)
    measured = [(f"{name} ({unit})", colour) for name, colour in parts]
    panels = []
    for row, column, said in zip(rows, columns, says or [""] * len(rows), strict=True):
        stacked = [
            Part(name, colour, [value / size for value in values])
            for (name, colour), values in zip(measured, column, strict=True)
        ]
        end = f"holds {column[0][-1] / size:,.4g} {unit}"
        panels.append(Panel(row["title"], stacked, f"{small_print(row.get('gloss', ''))}{said and f'<br>{said}'}", end))
    last = max((len(column[0]) for column in columns), default=1)
    sides = [[panel for i, panel in enumerate(panels) if i // 2 % 2 == side] for side in (0, 1)]
    most, down = highest / size or 1, -(-len(sides[0]) // 2)
    draw = partial(panels_figure, x="new token", most=most, last=last, rows=down, across=2, measure=unit)
    return [draw(side) for side in sides if side]


class Half(NamedTuple):
    """What is drawn in the rows of the caches: its title and gloss, its lines, words at a place of each row."""

    title: str
    gloss: str
    lines: Sequence[dict[str, Any]]
    words: Sequence[tuple[str, float]]
    reach: tuple[float, float]


def moves_figures(rows: Runs) -> list[go.Figure]:
    """Draw what each cache moves at its last step, and its median decode step with the middle half of its steps.

    Both stand in the same rows; two more figures have one each, for a screen that is too narrow for that.
    """
    timed = [row for row in reversed(rows) if len(row["step_s"]) > 2 and row["held"]]
    halves = _moved(timed), _took(timed)
    return [_in_rows(timed, some) for some in (halves, halves[:1], halves[1:])]


def _moved(timed: Runs) -> Half:
    moved = [(row["copied"] or 0, row["gathered"] or 0) for row in timed]
    unit, size = unit_for(max(map(max, moved), default=1))
    hatched = ["/" if row["mode"] == "cached" else "" for row in timed]  # its count is taken over from another
    pattern = {"shape": hatched, "fillmode": "replace", "solidity": 0.45}
    lines = [
        {
            "x": [parts[part] / size for parts in moved],
            "name": f"{name} ({unit})",
            "marker": {"color": colour, "pattern": pattern},
            "hovertemplate": f"%{{x:,.4~g}} {unit} {name}<extra></extra>",
        }
        for part, (name, colour) in enumerate(MOVED)
    ]
    words = []
    for row, parts in zip(timed, moved, strict=True):
        known = " + ".join(f"{part / size:,.4g}" for part in parts if part) or "0"
        words.append(("not counted" if row["copied"] is None else known, sum(parts) / size))
    most = 1.6 * max(map(sum, moved), default=1) / size or 1  # a narrow screen has room for the words beside a bar
    return Half(f"bytes at the last step, {unit}", "written + gathered", lines, words, (0, most))


def _took(timed: Runs) -> Half:
    spread = [[1e3 * seconds for seconds in quartiles(row)] for row in timed]
    lows, middles, highs = ([each[part] for each in spread] for part in range(3))
    reach = {
        "array": [high - middle for middle, high in zip(middles, highs, strict=True)],
        "arrayminus": [middle - low for low, middle in zip(lows, middles, strict=True)],
    }
    bars = {  # not seen: they hold the quartiles, and show the median to a pointer in their row
        "x": middles,
        "name": "median step (ms)",
        "marker": {"color": "rgba(0,0,0,0)"},
        "error_x": {**reach, "color": palette.KEPT},
        "hovertemplate": "%{x:.3g} ms<extra></extra>",
    }
    marker = {"size": 9, "color": palette.KEPT}
    dots = {"type": "scatter", "x": middles, "mode": "markers", "marker": marker, "hoverinfo": "skip"}
    said = [aligned_millis(middle / 1e3, 2).removesuffix(" ms") for middle in middles]
    most = 1.4 * max(highs, default=1.0)
    words = list(zip(said, highs, strict=True))
    return Half("time of a step, ms", "median and quartiles", [bars, dots], words, (-0.04 * most, most))


def _in_rows(timed: Runs, halves: Sequence[Half]) -> go.Figure:
    """Draw these beside one another in a row for each cache, which a thin line leads through."""
    names = [row["title"] for row in timed]
    axes: dict[str, Any] = {}
    lines, notes = [], []  # given to Plotly at once, because it takes long over each update
    for number, half in enumerate(halves):
        axis = f"x{number + 1}" if number else "x"
        share = [number / len(halves), (number + 1) / len(halves)]
        axes[f"xaxis{axis[1:]}"] = {"domain": share, "range": half.reach, "anchor": "y"}
        lines += [{"type": "bar", "orientation": "h", "y": names, "xaxis": axis, **line} for line in half.lines]
        head = {"text": f"<b>{half.title}</b>{small_print(half.gloss)}", "align": "left", "showarrow": False}
        above = {"x": 0, "xref": axis, "xanchor": "left", "y": 1, "yref": "paper", "yanchor": "bottom", "yshift": 4}
        notes.append({**above, **head})
        for name, (said, at) in zip(names, half.words, strict=True):
            beside = {"x": at, "xref": axis, "y": name, "xanchor": "left", "xshift": 8}
            notes.append({"text": said, **beside, **_ON_PAPER})
    axes["yaxis"] = {"range": [-0.6, len(timed) - 0.4], "showgrid": True, **named_rows(timed)}
    room = {"height": 114 + 40 * len(timed), "margin_t": 52, "margin_b": 58}  # below the scale: a button
    figure = blank(None, "", barmode="stack", showlegend=False, annotations=notes, **room, **_WIDE)
    return figure.update_layout(axes).add_traces(lines)


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
    figure = blank(f"held at the end of the text, {unit}", DRIFT, height=330, showlegend=False, **_WIDE)
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
    return f"10{str(power).translate(RAISED)}" if power else "1"


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
