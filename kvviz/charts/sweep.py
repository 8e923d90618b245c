"""Draws a sweep's rows: one measure against a varying axis, and a heat map."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import plotly.graph_objects as go

from kvviz.base.words import ratio
from kvviz.charts import palette
from kvviz.charts.layout import INK, add_notes, as_text, blank, name_ends
from kvviz.decoding.modes import MODES
from kvviz.experiments.sweep.words import QUARTILES

Row = Mapping[str, Any]

# The axes and measures of a sweep; a factor converts seconds or bytes to the named unit.
AXES = {
    "prompt_tokens": "prompt length in tokens",
    "new_tokens": "new tokens",
    "batch": "sequences",
    "model": "model",
    "dtype": "precision",
}
MEASURES = {
    "itl_s": ("inter-token latency, ms", 1e3),
    "total_s": ("whole generation, ms", 1e3),
    "speedup": ("speed-up against no cache, times", 1),
    "ttft_s": ("time to first token, ms", 1e3),
    "tokens_per_s": ("tokens per second", 1),
    "cache_bytes": ("cache at the end, MiB", 2**-20),
    "peak_bytes": ("peak above the weights, MiB", 2**-20),
    "flops": ("work of the whole generation, GFLOP", 1e-9),
}


def measures(rows: Sequence[Row]) -> list[str]:
    """The measures that these rows have, the most telling first."""
    return [name for name in MEASURES if any(row.get(name) is not None for row in rows)]


def varying(rows: Sequence[Row]) -> list[str]:
    """The axes along which the rows differ, the longest first; only the prompt length if none differs."""
    counts = {name: len({row[name] for row in rows if name in row}) for name in AXES}
    found = sorted((name for name in counts if counts[name] > 1), key=lambda name: -counts[name])
    return found or ["prompt_tokens"]


SPREAD = {"total_s": ("total_s_least", "total_s_most"), "itl_s": QUARTILES}  # of a measured point


def spread_told(rows: Sequence[Row], measure: str) -> bool:
    """Whether the rows have the spread of a measure at any point."""
    return any(row.get(name) is not None for row in rows for name in SPREAD.get(measure, ()))


_BETWEEN = {
    "arrowcolor": INK,
    "arrowwidth": 1,
    "arrowhead": 2,
    "arrowside": "end+start",
    "standoff": 7,
    "startstandoff": 7,
}
NARROW = 0.1  # of an axis, below which a factor has no room on its arrow
TICK = 0.08  # of an axis: the room of a number below it, also on a phone
FAR = 30  # times between two lines, from which on the lower one would lie on the zero of a linear axis


def far_apart(rows: Sequence[Row], measure: str, axis: str) -> bool:
    """Whether anywhere on the axis the highest line is more than FAR times the lowest."""
    at: dict[Any, list[float]] = {}
    for row in rows:
        if row.get(measure):
            at.setdefault(row[axis], []).append(row[measure])
    return any(max(values) > FAR * min(values) for values in at.values())


def against(rows: Sequence[Row], measure: str, axis: str, *, log: bool = False) -> go.Figure:
    """Draw a measure against one axis, with a line for each mode and each combination of the other varying axes."""
    title, factor = MEASURES[measure]
    others = [name for name in varying(rows) if name != axis]
    lines: dict[tuple, list[Row]] = {}
    for row in rows:
        if row.get(measure) is not None and (measure, row["mode"]) != ("speedup", "uncached"):  # which is 1 anywhere
            lines.setdefault((row["mode"], *(row[name] for name in others)), []).append(row)
    combinations = list(dict.fromkeys(key[1:] for key in lines))
    kind = "category" if axis in ("model", "dtype") else "log" if log else "linear"
    types: dict[str, Any] = {"xaxis_type": kind, "yaxis_type": "log" if log else "linear"}
    doubles = " (doubling)" if kind == "log" and _doubling({row[axis] for row in rows}) else ""
    dashes = [palette.SERIES_DASH[combinations.index(key[1:]) % len(palette.SERIES_DASH)] for key in lines]
    drawn = [
        _line(key, found, measure, axis, factor, dash) for (key, found), dash in zip(lines.items(), dashes, strict=True)
    ]
    if kind != "category":
        places = _apart({value for line in drawn for value in line["x"]}, log=kind == "log")
        types |= {"xaxis_tickvals": places, "xaxis_ticktext": [f"{value:,}" for value in places]}
    titles = AXES[axis] + doubles, f"{title}, logarithmic" if log else title
    figure = blank(*titles, drawn, height=400, **types)
    if kind != "category":
        name_ends(figure)
        _say_growth(figure)
    if factors_told(rows, measure, axis):
        _factors(figure, "the work" if measure == "flops" else "as fast", log=log)
    return figure


def factors_told(rows: Sequence[Row], measure: str, axis: str) -> bool:
    """Whether `against` writes between two points how many times the upper is of the lower: if two lines are all."""
    modes = {row["mode"] for row in rows if row.get(measure) is not None}
    return measure in ("itl_s", "total_s", "flops") and modes == {"uncached", "cached"} and set(varying(rows)) <= {axis}


def _apart(values: set[float], *, log: bool) -> list[float]:
    """Return the values that get a number on an axis: all on a logarithmic one, else those TICK of it apart."""
    kept: list[float] = []
    for value in sorted(values, reverse=True):
        if log or not kept or kept[-1] - value >= TICK * (max(values) - min(values)):
            kept.append(value)
    return kept[::-1]


def _doubling(values: set[float]) -> bool:
    """Whether each value is twice the one before it."""
    ranked = sorted(values)
    return len(ranked) > 1 and all(after == 2 * before for before, after in pairwise(ranked))


def _say_growth(figure: go.Figure) -> None:
    """Add to each name at a line's end how its last point stands to its first one."""
    ends = {line.name: _growth(line.y[-1] / line.y[0]) for line in figure.data if len(line.y) > 1 and line.y[0]}
    for label in figure.layout.annotations:
        if label.text in ends:
            label.text += f"<br>{ends[label.text]}"
            figure.update_layout(margin_r=max(130, 7 * len(label.text.split("<br>")[-1]) + 12, figure.layout.margin.r))


def _growth(times: float) -> str:
    """How a line ends that is so many times as high there; × is the sign of the factor between two lines."""
    if ratio(times) == "1.0":
        return "stays level"
    return f"grows {ratio(times)}-fold" if times > 1 else f"falls to {times:.0%}"


def _factors(figure: go.Figure, what: str, *, log: bool) -> None:
    """Write between two points how many times `what` the upper is of the lower."""
    lines = {line.name: line for line in figure.data}
    without, within = (lines[MODES[mode].title] for mode in ("uncached", "cached"))
    cached = dict(zip(within.x, within.y, strict=True))
    along = math.log10 if figure.layout.xaxis.type == "log" else float
    up = math.log10 if log else float
    tops = [up(value) for value in (*without.y, *within.y) if value]
    whole = max(tops) - (min(tops) if log else 0.0)
    notes: list[dict[str, Any]] = []
    for x, high in zip(without.x, without.y, strict=True):
        if not cached.get(x) or not high:
            continue
        place, low, top = along(x), up(cached[x]), up(high)
        ends = {"x": place, "y": top, "ax": place, "ay": low, "axref": "x", "ayref": "y"}
        notes.append({"text": "", **ends, **_BETWEEN})
        last = x == without.x[-1] and figure.layout.showlegend is False  # where there is room beside the plot
        side: dict[str, Any] = {"bgcolor": palette.PAPER, "borderpad": 1}
        if abs(top - low) < NARROW * whole:
            right = x == without.x[-1] and not last
            side = {"xanchor": "right" if right else "left", "xshift": -8 if right else 8}
        text = f"<b>{ratio(high / cached[x])}×</b>{f' {what}' if last else ''}"
        notes.append({"text": text, "x": place, "y": (top + low) / 2, "showarrow": False, **side})
    add_notes(figure, notes)


def _line(key: tuple, rows: Sequence[Row], measure: str, axis: str, factor: float, dash: str) -> dict:
    """Draw a line in its mode's colour; the dash shows which combination of the other axes it belongs to."""
    mode, *others = key
    name = ", ".join([MODES[mode].title if mode in MODES else mode, *(str(part) for part in others)])
    rows = sorted(rows, key=lambda row: row[axis])
    x = [as_text(row[axis]) if isinstance(row[axis], str) else row[axis] for row in rows]
    y = [row[measure] * factor for row in rows]
    line, marker = {**palette.line(mode), "dash": dash}, {"size": 9, "symbol": palette.MARKER.get(mode, "cross")}
    look: dict[str, Any] = {"mode": "lines+markers", "line": line, "marker": marker, "cliponaxis": False}
    if spread_told(rows, measure):
        low, high = (
            [abs(row[name] - row[measure]) * factor if row.get(name) is not None else 0.0 for row in rows]
            for name in SPREAD[measure]
        )
        look["error_y"] = {"array": high, "arrayminus": low, "symmetric": False, "thickness": 1.5, "width": 7}
    return {"x": x, "y": y, "name": as_text(name), **look}


def heat(rows: Sequence[Row], measure: str, mode: str, x: str, y: str) -> go.Figure:
    """Draw a heat map of one mode's measure over two axes."""
    factor = MEASURES[measure][1]
    mine = [row for row in rows if row["mode"] == mode and row[measure] is not None]
    xs, ys = ([as_text(v) for v in sorted({row[name] for row in mine})] for name in (x, y))
    at = {(as_text(row[x]), as_text(row[y])): row[measure] * factor for row in mine}
    z = [[at.get((a, b)) for a in xs] for b in ys]
    bar = {"title": {"text": MEASURES[measure][0], "side": "right"}, "thickness": 14}
    look = {"colorscale": list(zip((0, 1), palette.RAMP, strict=True)), "colorbar": bar}
    look |= {"texttemplate": "%{z:.3g}", "textfont": {"size": 16}}
    figure = go.Figure(go.Heatmap(x=xs, y=ys, z=z, **look))
    axes = {f"{name}axis": {"title": AXES[axis], "type": "category"} for name, axis in (("x", x), ("y", y))}
    height = 120 + 60 * max(2, len(ys))
    return figure.update_layout(font_size=15, height=height, margin={"t": 20, "r": 20}, **axes)
