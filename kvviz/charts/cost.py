"""Draws the figures of the cost page. Work is in operations or FLOPs, with prefixes in powers of 1000."""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from kvviz.base.words import brief
from kvviz.charts import palette
from kvviz.charts.layout import AT_EDGE, DOTTED, blank, notes_apart, room_at_edge

_UNITS = ((1e21, "Z"), (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""))
# Name and colour of each part, from the bottom of the stack to its top. New tokens computed again have the hue of that,
# products with weights are teal, and attention has its own.
PARTS = {
    "linear": ("the prompt, each time", "#4B5563"),
    "square": ("new tokens, each time", palette.AGAIN),
    "projections": ("projections", "#0F4C5C"),
    "mlp": ("MLP", palette.PRODUCTS),
    "router": ("router", "#2E7D6B"),
    "extra": ("other matrices", "#4B5563"),
    "mixing": ("recurrence", "#8A6A00"),
    "head": ("output layer", "#6B7C85"),
    "cross": ("cross-attention", "#9C8FD6"),
    "indexer": ("indexer", "#E69F00"),
    "attention": ("attention", palette.ATTENTION),
}
CASES = {"uncached": "No cache", "cached": "KV cache"}
WAITS = {  # what a run's least time is made of, in the roofline's colours
    "arithmetic": ("waiting for arithmetic", palette.NEW),
    "weights": ("waiting for weights", palette.DARK["cached"]),
    "rest": ("waiting for other bytes", palette.ELSE),
}
WIDE = 0.12  # of the longest bar: a narrower piece has no room for its seconds, also on a phone
SEEN = 0.01  # of the height: a thinner band can't be seen, and its name would lie beside another
_HEIGHT = 350  # pixels


def scaled(most: float) -> tuple[float, str]:
    """Choose the power of 1000 that leaves the largest value at least one digit before the point, and its prefix."""
    return next((row for row in _UNITS if most >= row[0]), _UNITS[-1])


def figure_of(value: float, unit: str = "") -> str:
    """Format a number with prefix and unit; a short one shows all its digits: 1474560 -> '1,474,560', 2e12 -> '2 T'."""
    if value < 1e7 and not unit:
        return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
    size, prefix = scaled(abs(value))
    return f"{value / size:.3g} {prefix}{unit}".strip() if value < 1e24 else f"{value:.3g} {unit}".strip()


def run_figure(xs: Sequence[int], work: Mapping[str, Sequence[float]], digits: int = 3) -> go.Figure:
    """Draw the FLOPs of a run so far against its new tokens, a line for each mode with its sum at the end.

    The sums have so many digits, in the unit of the smallest, so that they compare as they stand.
    """
    size, prefix = scaled(min(values[-1] for values in work.values()))
    unit, lines, names = f"{prefix}FLOP", [], []
    for mode, values in work.items():
        look = {"name": CASES[mode], "line": palette.line(mode, 3), "hovertemplate": f"%{{y:,.4r}} {unit}"}
        shown = "lines" if len(xs) > 1 else "markers"
        lines.append({"x": list(xs), "y": [value / size for value in values], "mode": shown, **look})
        names.append(
            (f"{CASES[mode]},<br>{amount(values[-1], size, digits)} {unit}", palette.LIGHT[mode], values[-1] / size)
        )
    most = max(value for _, _, value in names)
    reach = -0.08 * most, 1.06 * most  # the lower line's name is as high as two lines: below 0 it has room
    edge = 0.015 * (xs[-1] - xs[0]) or 0.5
    axes = {"xaxis_range": [xs[0] - edge, xs[-1] + edge], "yaxis_range": reach, "yaxis_tickformat": ","}
    return _framed("new token", f"{unit} so far", lines, names, reach, **axes)


def amount(value: float, size: float = 1, digits: int = 3) -> str:
    """A value in units of `size` with so many digits, none as an exponent: 4289.6 -> '4,290'."""
    return f"{float(f'{value / size:.{digits}g}'):,.10g}"


def area_figure(
    xs: Sequence[int],
    parts: Mapping[str, Sequence[float]],
    *,
    x_title: str,
    unit: str,
    size: float = 1,
    scale: str = "",
    marks: Sequence[tuple[int, str]] = (),
    cached: Sequence[float] = (),
) -> go.Figure:
    """Draw the parts of a cost, stacked, against the number of tokens; `marks` label some numbers of tokens.

    `cached` is drawn over them as a line: what the same costs with the cache; then the areas are named, too. `scale` is
    said behind the unit, of which one is `size`.
    """
    hover = {"mode": "lines", "hovertemplate": f"%{{y:.4s}}{unit}" if size == 1 else f"%{{y:,.4r}} {unit}"}
    lines: list[dict[str, Any]] = []
    parts = {name: [value / size for value in values] for name, values in parts.items()}
    below, names, whole = 0.0, [], sum(values[-1] for values in parts.values())
    for name, values in parts.items():
        title, colour = PARTS[name]
        look: dict[str, Any] = {"line": {"width": 1, "color": colour}, "stackgroup": "all"}  # filled in a paler colour
        if not cached:  # nothing is drawn over them
            look |= {"line": {"width": 1, "color": palette.PAPER}, "fillcolor": colour}
        lines.append({"x": list(xs), "y": values, "name": title, **look, **hover})
        if values[-1] > SEEN * whole:
            names.append((title.replace(", ", ",<br>"), colour, below + values[-1] / 2))
        below += values[-1]
    notes, shapes = _marked(xs, marks)
    if cached:
        look = {"name": CASES["cached"], "line": palette.line("cached", 3)}
        lines.append({"x": list(xs), "y": list(cached), **look, **hover})
        names.append((CASES["cached"], palette.LIGHT["cached"], cached[-1]))
        inside = 3 * len(xs) // 4
        middle = {"x": xs[inside], "y": sum(values[inside] for values in parts.values()) / 2, "showarrow": False}
        notes.append({"text": f"<b>{CASES['uncached']}</b>", **middle})
    top = 1.15 * below if marks else below  # the marks' labels have room above the areas
    axes: dict[str, Any] = {"xaxis_range": [xs[0], xs[-1]], "yaxis_tickformat": "~s" if size == 1 else ","}
    axes |= {"yaxis_range": [0, top]} if marks else {}
    return _framed(x_title, unit + scale, lines, names, (0, top), notes, shapes=shapes, **axes)


def _framed(
    x: str,
    y: str,
    lines: Sequence[Mapping[str, Any]],
    names: Sequence[tuple[str, str, float]],
    reach: tuple[float, float],
    notes: Sequence[Mapping[str, Any]] = (),
    /,
    **more: Any,
) -> go.Figure:
    """Draw lines with their names at the right edge, in margins in which the plots of all charts here form a grid."""
    named = notes_apart(names, reach, _HEIGHT, **AT_EDGE)
    more |= {"height": _HEIGHT, "hovermode": "x unified", "showlegend": False, "annotations": [*notes, *named]}
    more |= {"margin_l": 84, "margin_r": max(room_at_edge(names), 126), "yaxis_automargin": False}
    return blank(x, y, lines, **more)


def each_step_figure(xs: Sequence[int], prompt: int) -> go.Figure:
    """Draw the tokens that the step of each new token computes: without the cache a rectangle, the prompt, and a
    triangle on it; with the cache the prompt once, then one.
    """
    parts = {"linear": [prompt] * len(xs), "square": [n - 1 for n in xs]}
    cached = [prompt, *[1] * (len(xs) - 1)]
    figure = area_figure(xs, parts, x_title="new token", unit="tokens", scale=" computed for it", cached=cached)
    figure.layout.yaxis.tickformat = ","
    return figure


def time_figure(spent: Mapping[str, Mapping[str, float]], totals: Sequence[str]) -> go.Figure:
    """Draw each mode's least seconds as a bar of what its forwards wait for (WAITS), its total in words at its end."""
    wholes = [sum(pieces.values()) for pieces in spent.values()]
    factor, unit = (1.0, "s") if max(wholes) >= 1 else (1e3, "ms")
    look = {"barmode": "stack", "bargap": 0.35, "height": 165, "showlegend": False, "margin_r": 80}
    names, bars, notes = [CASES[mode] for mode in spent], [], []
    for piece, (title, colour) in WAITS.items():
        seconds = [pieces.get(piece, 0.0) for pieces in spent.values()]
        said = [brief(each, 2) if each > WIDE * max(wholes) else "" for each in seconds]
        words = {"textposition": "inside", "insidetextanchor": "middle", "insidetextfont_color": palette.ON_PALE}
        hover = {"name": title, "hovertemplate": f"{title}: %{{x:.3g}} {unit}<extra></extra>"}
        bar = {"x": [each * factor for each in seconds], "orientation": "h", "marker_color": colour}
        bars.append({"type": "bar", "y": names, "text": said, "textangle": 0, **bar, **words, **hover})
    for name, whole, total in zip(names, wholes, totals, strict=True):
        label = {"x": whole * factor, "y": name, "xanchor": "left", "xshift": 6, "showarrow": False}
        notes.append({"text": f"<b>{total}</b>", **label})
    axes = {"xaxis_range": [0, max(wholes) * factor], "yaxis_autorange": "reversed"}
    return blank(f"least time, {unit}", "", bars, annotations=notes, **axes, **look)


def _marked(xs: Sequence[int], marks: Sequence[tuple[int, str]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Mark numbers of tokens by dotted lines, each label on the side with more room and below the one before.

    Returns the labels as Plotly's annotations, and the lines as its shapes.
    """
    notes, shapes = [], []
    for row, (place, words) in enumerate(marks):
        side, shift = ("left", 4) if place < (xs[0] + xs[-1]) / 2 else ("right", -4)
        label = {"text": words, "yref": "paper", "y": 1 - 0.1 * row, "yanchor": "top", "xanchor": side, "xshift": shift}
        label |= {"bgcolor": palette.PAPER, "borderpad": 0}  # a line of the grid would strike it out
        shapes.append({"type": "line", "x0": place, "x1": place, "y0": 0, "y1": 1, "yref": "paper", "line": DOTTED})
        notes.append({"x": place, "showarrow": False, **label})
    return notes, shapes
