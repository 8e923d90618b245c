"""Draws the figures of the memory calculator. Byte units are powers of 1024."""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Context
from typing import Any

import plotly.graph_objects as go

from kvviz.base.words import human, human_range, in_one_unit, ratio
from kvviz.charts import palette
from kvviz.charts.layout import BARE, DOTTED, MARGIN, as_text, blank, name_ends, notes_apart, upright
from kvviz.memory.explain import KIND_WORDS
from kvviz.memory.formula import Memory

HEIGHT = 400  # pixels
_APART = {"showlegend": False, "hoverinfo": "skip"}  # of what belongs to a line that is named and told elsewhere
_UNITS = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))

Line = tuple[str, Sequence[int], Sequence[int], int | None, int]


def unit_for(most: float) -> tuple[str, int]:
    """Choose the unit that leaves the largest value at least one digit before the point, and its bytes."""
    return next(((name, size) for name, size in _UNITS if most >= size), _UNITS[-1])


def context_figure(lines: Sequence[Line], at: int, *, log: bool = False, what: str = "KV cache") -> go.Figure:
    """Draw bytes against tokens: (name, tokens, bytes, limit, bytes at the chosen tokens) for each model.

    The first line is thick and in colour, and each has a dot at the chosen tokens. Beyond its limit, the longest
    context that a model was made for, a line is dashed and its dot hollow.
    """
    figure = name_ends(_contexts(lines, at, [palette.KEPT, *[palette.REFERENCE] * (len(lines) - 1)], log, what))
    if figure.layout.showlegend is not False:  # a legend tells lines by their colours; words stand at one alone
        figure = _contexts(lines, at, palette.SERIES, log, what, told=1)
    return figure


def _contexts(
    lines: Sequence[Line], at: int, colours: Sequence[str], log: bool, what: str, told: int | None = None
) -> go.Figure:
    """Draw the lines in these colours, and write figures beside the first `told` of them."""
    unit, size = unit_for(max((max(ys) for _, _, ys, _, _ in lines), default=1))
    axis = "log" if log else "linear"
    axes = {"xaxis_type": axis, "yaxis_type": axis, "yaxis_nticks": 6, "legend_y": 1.1}
    drawn: list[dict[str, Any]] = []
    for (name, xs, ys, limit, held), colour in zip(lines, colours, strict=False):
        words = {"text": [f"{human(y)} ({y:,} B)" for y in ys], "hovertemplate": "%{text}"}
        x, y, look = list(xs), [y / size for y in ys], {"name": as_text(name).replace("\n", "<br>"), "mode": "lines"}
        line = {"color": colour, "width": 1.5 if drawn else 4}
        beyond = {**line, "dash": "dash"} if limit else line
        if limit:
            within = bisect_right(x, limit)
            drawn.append({"x": x[:within], "y": y[:within], "line": line, **look, **_APART})
        drawn.append({"x": x, "y": y, "line": beyond, **look, **words})
        dot = {"color": colour, "size": 9, "symbol": "circle-open" if limit and limit < at else "circle"}
        drawn.append({"x": [at], "y": [held / size], "mode": "markers", "marker": dot, **_APART})
    heights = [y for line in drawn for y in line["y"]]
    said = _told(lines[:told], at, colours, size, (min(heights), max(heights)), log=log)
    notes = {"annotations": said, "shapes": [upright(at, DOTTED)], "margin": {**MARGIN, "t": 32}}
    return _blank("tokens in the cache", f"{what}, {unit}", drawn, hovermode="x unified", **notes, **axes)


def _told(
    lines: Sequence[Line], at: int, colours: Sequence[str], size: int, heights: tuple[float, float], *, log: bool
) -> list[dict[str, Any]]:
    """Return notes with the bytes at the dots, and where each line becomes dashed what its model was made for.

    `heights`: the lowest and the highest that is drawn.
    """
    place = math.log10 if log else float
    least, most = heights
    reach = (least if log else 0.0, most)

    def high(value: float, *, share: float) -> bool:
        """Whether there is room for words between a value and the axis, in a share of its height."""
        return place(value) > place(reach[0]) + share * (place(most) - place(reach[0]))

    chosen = {"text": f"{at:,} tokens", "textangle": 0, "showarrow": False, "x": place(at), "xanchor": "center"}
    notes: list[dict[str, Any]] = [{**chosen, "xref": "x", "y": 1, "yanchor": "bottom", "yref": "y domain"}]
    held = [line[-1] for line in lines]
    found = sorted(zip((nbytes / size for nbytes in held), in_one_unit(held), colours, strict=False))
    values = [(words, colour, value) for value, words, colour in found]
    # all above their lines, on the left, but the lowest below, where no other line is
    low = int(len(values) > 1 and high(found[0][0], share=0.03))
    below: dict[str, Any] = {"xanchor": "left", "xshift": 8, "lift": -12}
    on_left = place(at) - place(lines[0][1][0]) > 0.2 * (place(lines[0][1][-1]) - place(lines[0][1][0]))
    above = {"xanchor": "right", "xshift": -8, "lift": 12} if on_left else {**below, "lift": 24}
    for some, side in ((values[:low], below), (values[low:], above)):
        if some:
            notes += notes_apart(some, reach, HEIGHT, log=log, x=place(at), **side)
    limits: dict[int, tuple[float, str]] = {}  # what several models were made for is told once, at the highest line
    for (_, xs, ys, limit, _), colour in zip(lines, colours, strict=False):
        if limit:
            point = ys[bisect_right(xs, limit) - 1] / size, colour
            limits[limit] = max(limits.get(limit, point), point)
    for limit, (value, colour) in limits.items():
        look = {"font": {"color": colour, "size": 12}, "showarrow": False, "xanchor": "left", "xshift": 4}
        spot = {"x": place(limit), "y": place(value), "yshift": -12 if high(value, share=0.1) else 12}
        notes.append({"text": f"made for {limit:,}", **spot, **look})
    return notes


def _blank(x: str, y: str, lines: Sequence[Mapping[str, Any]] = (), /, **more: Any) -> go.Figure:
    return blank(x, y, lines, **{"height": HEIGHT, "margin": {**MARGIN, "r": 20}, **more})


_DEEP = ("full", "indexed", "hybrid")  # kinds in whose colour white words can be read


def _strip(memory: Memory) -> go.Figure:
    """Draw layers that are alike in a row: a box has its layer's number where there is room for it."""
    rows, each = memory.layers, memory.layers[0].nbytes
    unit, size = unit_for(len(rows) * each)
    look = {"height": 128, "showlegend": False, "margin": {**MARGIN, "l": 10, "r": 10, "t": 8, "b": MARGIN["b"] + 10}}
    figure = _blank(f"all layers together, {unit}", "", uniformtext={"minsize": 11, "mode": "hide"}, **look)
    kind = "state" if rows[0].state_bytes else rows[0].kind
    box = {"color": palette.KINDS[kind], "line": {"width": 2, "color": palette.PAPER}}
    ink = palette.ON_DEEP if kind in _DEEP else palette.ON_PALE
    words: dict[str, Any] = {"textposition": "inside", "insidetextanchor": "middle", "textangle": 0}
    words |= {"text": [str(row.index) for row in rows], "insidetextfont": {"size": 12, "color": ink}}
    words |= {"hovertext": [f"layer {row.index}: {each:,} B" for row in rows], "hoverinfo": "text"}
    places = range(len(rows))  # of each layer's own row, from which its box is moved to the first
    where = {"base": [n * each / size for n in places], "offset": [-n - 0.5 for n in places], "width": 1}
    names = [f"layer {row.index}" for row in rows]
    figure.add_bar(x=[each / size] * len(rows), y=names, orientation="h", marker=box, **where, **words)
    figure.update_yaxes(range=[-0.5, 0.5], showticklabels=False, showgrid=False, automargin=False)
    return figure.update_xaxes(range=[0, len(rows) * each / size], showgrid=False)


def layer_figure(memory: Memory) -> go.Figure:
    """Draw the bytes of each layer, coloured by kind, with recurrent states stacked on keys and values.

    Layers that are alike stand in one strip instead, which is as long as all of them together.
    """
    alike = {(row.nbytes, row.state_bytes, row.kind) for row in memory.layers}
    if len(alike) == 1 and all(state in (0, each) for each, state, _ in alike):
        return _strip(memory)
    unit, size = unit_for(max((row.nbytes for row in memory.layers), default=1))
    figure = _blank("layer", unit, barmode="stack", bargap=0.15)
    for kind in dict.fromkeys(row.kind for row in memory.layers):
        rows = [row for row in memory.layers if row.kind == kind]
        plain, states = [row.nbytes - row.state_bytes for row in rows], [row.state_bytes for row in rows]
        parts = [(plain, "K and V", kind)] if any(plain) or not any(states) else []
        parts += [(states, "state", "state")] if any(states) else []
        for values, word, colour in parts:
            text = [f"layer {row.index}: {value:,} B" for row, value in zip(rows, values, strict=True)]
            look = {"marker_color": palette.KINDS[colour], "hovertext": text, "hoverinfo": "text+name"}
            y, name = [value / size for value in values], f"{word}: {KIND_WORDS[kind]}"
            figure.add_bar(x=[row.index for row in rows], y=y, name=name, **look)
    return figure if len(figure.data) > 1 else figure.update_layout(showlegend=False, margin_t=BARE)


_PARTS = {"weights": "weights", "KV cache": "full", "activations": "activations", "Captured CUDA graphs": "graphs"}


def part_colour(name: str) -> str:
    """Return the colour of a part of a card's memory."""
    return palette.KINDS[_PARTS.get(name, "overhead")]


Parts = Sequence[tuple[str, int, int]]  # what a card's memory holds: each part's name, its least and its most bytes


_LIMIT = {"width": 3, "color": "#777777"}
_FIT = {True: "fit", None: "perhaps", False: "no"}
_WIDE = 6  # bars that fill the chart: fewer are no wider


def sequences_figure(
    filled: Sequence[tuple[int, Parts, bool | None]], asked: int, capacity: int, budget: int, title: str
) -> go.Figure:
    """Draw what a card's memory holds for numbers of sequences: (how many, their parts, whether they fit).

    What lies between a part's least and its most is hatched. A line stands at the card's capacity, and another at the
    `budget` that the engine may use. Of the numbers that fit the largest says so, as does each that may not, and the
    number that is `asked` for says that. A gap stands before those at the card's end, which double no more.
    """
    unit, size = unit_for(max(capacity, *(sum(most for _, _, most in parts) for _, parts, _ in filled)))
    look = {"showlegend": False, "margin": {**MARGIN, "t": 12}}
    figure = _blank("sequences at once", unit, barmode="stack", bargap=0.3, **look)
    places = [f"{count:,}" for count, _, _ in filled]
    _add_parts(figure, places, [parts for _, parts, _ in filled], size)
    most = max((count for count, _, fits in filled if fits), default=0)
    more = [["as asked"] * (count == asked) + [_FIT[fits]] * (count >= most) for count, _, fits in filled]
    said = [f"{place}<br>{', '.join(words)}" for place, words in zip(places, more, strict=True)]
    below = sum(count < most for count, _, _ in filled)
    order = [*places[:below], *["…"] * (below > 1), *places[below:]]
    reach = [-0.5, max(_WIDE, len(order)) - 0.5]
    ticks = {"tickvals": order, "ticktext": [*said[:below], *["…"] * (below > 1), *said[below:]], "tickangle": 0}
    figure.update_xaxes(type="category", categoryorder="array", categoryarray=order, range=reach, **ticks)
    side = "left" if len(places) >= _WIDE else "right"  # where bars are low, or none
    lines = [(capacity, f"{title}: {human(capacity)}", "bottom", "solid")]
    lines += [(budget, f"the engine may use {human(budget)}", "top", "dot")] if budget < capacity else []
    for place, words, anchor, dash in lines:
        label = {"text": words, "x": int(side == "right"), "xanchor": side, "yanchor": anchor}
        figure.add_hline(y=place / size, line={**_LIMIT, "dash": dash}, annotation=label)
    return figure


def _add_parts(figure: go.Figure, places: Sequence[str], columns: Sequence[Parts], size: int) -> None:
    """Stack each part at every place: its least bytes, and hatched what its most is more."""
    for same in zip(*columns, strict=True):
        name = same[0][0]
        said = [human_range(least, most) + (f" ({least:,} B)" if least == most else "") for _, least, most in same]
        words: dict[str, Any] = {"hovertext": [f"{name}: {span}" for span in said], "hoverinfo": "text"}
        words |= {"x": places}
        colour = part_colour(name)
        figure.add_bar(name=name, marker_color=colour, **words, y=[least / size for _, least, _ in same])
        if any(most > least for _, least, most in same):
            hatched = {"color": colour, "pattern": {"shape": "/", "fillmode": "replace", "solidity": 0.35}}
            more = {"name": f"{name}, at most more", "marker": hatched}
            figure.add_bar(**more, **words, y=[(most - least) / size for _, least, most in same])


IDEA, CUT = 46, 4.0  # pixels of an idea's row; the factor at which a longer bar is cut off
_LINE = 60  # characters of a telephone's line


def ideas_figure(ideas: Sequence[tuple[str, str, int, float]], colour: str, reach: float) -> go.Figure:
    """Draw what other ideas would keep as bars on a scale up to `reach`, under that of the model as it is: 1.

    An idea is its name, what it is in a few words, its bytes, and these as a factor; the first, the model, is grey.
    """
    names, factors = [as_text(name) for name, *_ in ideas], [factor for *_, factor in ideas]
    look = {"showlegend": False, "margin": {**MARGIN, "l": 6, "t": 0}, "height": 60 + IDEA * max(2, len(ideas))}
    said = [f"{human(nbytes)}, {times(factor)}×{' (cut off)' * (factor > reach)}" for _, _, nbytes, factor in ideas]
    hover = {"hovertext": [f"{name}: {each}" for name, each in zip(names, said, strict=True)], "hoverinfo": "text"}
    bars: dict[str, Any] = {"type": "bar", "orientation": "h", "width": 0.4, "meta": {"values": factors}}
    bars["marker"] = {"color": [palette.REFERENCE, *[colour] * (len(ideas) - 1)]}
    bars |= {"x": [min(factor, reach) for factor in factors], "y": names, **hover}
    notes = []
    place = {"xref": "paper", "x": 0, "xanchor": "left", "yanchor": "bottom", "yshift": 10, "showarrow": False}
    for name, told, (_, gloss, _, factor) in zip(names, said, ideas, strict=True):
        text = f"<b>{name}</b>"
        if gloss and len(name) + len(gloss) < _LINE:
            text += f": {as_text(gloss)}"
        notes.append({"text": text, "y": name, "font_size": 13, **place})
        end = {"x": factor, "xanchor": "left", "xshift": 4}
        if factor > 0.7 * reach:
            end = {"x": min(factor, reach), "xanchor": "right", "xshift": -4, "font_color": palette.ON_DEEP}
        notes.append({"text": told, "y": name, "font_size": 13, "showarrow": False, **end})
    bare = {"showticklabels": False, "showgrid": False, "automargin": False}
    rows = {"type": "category", "categoryarray": names, "range": [len(ideas) - 0.6, -0.75], "rangemode": "normal"}
    scale = {"xaxis_range": [0, reach], "xaxis_dtick": 1, "xaxis_showgrid": False}
    axes = scale | {f"yaxis_{name}": value for name, value in {**rows, **bare}.items()}
    return blank("times the bytes that the model keeps", "", [bars], annotations=notes, **axes, **look)


_TWO = Context(prec=2, rounding=ROUND_HALF_UP)


def times(factor: float) -> str:
    """A factor as `ratio` says it, and one below 1 in two digits, rounded half up: 0.13 for 1/8, and 0.50."""
    return ratio(factor) if factor >= 1 else f"{float(_TWO.create_decimal(factor)):#.2g}"
