"""Draws the figures of the roofline page from a document's points and profiles."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from kvviz.base.words import millis
from kvviz.charts import palette
from kvviz.charts.cost import figure_of, scaled
from kvviz.charts.layout import MARGIN, as_text, blank, name_ends
from kvviz.cost.roofline import DECODE, PREFILL, Roof
from kvviz.experiments.roofline.spec import SHORT
from kvviz.experiments.roofline.words import compiled_point

COLOURS = {"prefill": palette.PREFILL, **dict.fromkeys(("context", "short", "long"), palette.DECODE)}
DASH = {"short": "dot"}
MARKERS = {"prefill": "diamond", "context": "circle", "short": "triangle-up", "long": "square"}
GROUP = 22  # pixels of the band behind the first points of the batches: all contexts of one sequence lie there
SAID = {  # beside a series
    "prefill": "prefill,<br>{tokens:,} tokens<br>{intensity:.2g} FLOP/B",
    "context": "decode step, one sequence<br>{intensity:.2g} FLOP/B",
    "short": "batch {batch},<br>{tokens:,} tokens",
    "long": "batch {batch}, {tokens:,} tokens",
}
AT = {"prefill": max, "context": min}  # the label stands at the highest or the lowest point, of the others at the last
LIES = {  # on which side of the point: the label's own anchors
    "prefill": ("center", "top"),
    "context": ("left", "top"),
    "short": ("right", "bottom"),
    "long": ("left", "lead"),
}
NUMBERS = {  # where the number of each point but the last stands
    "prefill": "bottom center",
    "short": "bottom right",
    "long": "top left",
}  # where each point but the last has its own
ROOF = "#5C6672"
CLASSES = {
    "weights": ("products with the weights", palette.PRODUCTS),
    "attention": ("attention", palette.ATTENTION),
    "cache": ("cache update", palette.NEW),
    "other": ("norms, activations, sampling …", palette.ELSE),
    "call": ("the whole step as one call", palette.LIGHT["compiled"]),
    "gaps": ("between operations, at most", palette.FREE),
}
FORWARDS = {
    "prefill": "prefill",
    "decode": "decode step,<br>KV cache",
    "compiled step": "decode step,<br>compiled",
    "uncached step": "decode step,<br>no cache",
}
Points = Sequence[Mapping[str, Any]]


def series(points: Points) -> dict[str, list[Mapping[str, Any]]]:
    """Sort the points into four series: growing prompts, growing contexts, and growing batches at two contexts."""
    steps = [p for p in points if p["phase"] == DECODE]
    longest = max(p["tokens"] for p in steps)
    found = {
        "prefill": [p for p in points if p["phase"] == PREFILL],
        "context": [p for p in steps if p["batch"] == 1],
        "short": [p for p in steps if p["tokens"] == SHORT],
        "long": [p for p in steps if p["tokens"] == longest],
    }
    order = {name: "tokens" if name in ("prefill", "context") else "batch" for name in found}
    return {name: sorted(row, key=lambda p: p[order[name]]) for name, row in found.items() if len(row) > 1}


def names(points: Points) -> dict[str, str]:
    """Name each series."""
    rows = series(points)
    return {
        name: {
            "prefill": f"prefill, {row[0]['tokens']:,} to {row[-1]['tokens']:,} tokens",
            "context": f"decode, context {row[0]['tokens']:,} to {row[-1]['tokens']:,}",
        }.get(name, f"decode, batch {row[0]['batch']} to {row[-1]['batch']} at {row[0]['tokens']:,} tokens")
        for name, row in rows.items()
    }


def roofline_figure(found: Mapping[str, Any], sheet: tuple[str, Roof] | None = None) -> go.Figure:
    """Draw FLOP/s against FLOP/B on logarithmic axes: the measured roof, the row line and the points in four series.

    A step whose weights stay in the chip's own cache, as the compiled one's may, has a roof of its own, if that was
    measured. `sheet`: the name and advertised roof of an accelerator, drawn with the most that it allows each point.
    """
    points, roof, row = found["points"], Roof(**found["roof"]), Roof(**found["row"])
    near, compiled = found.get("near_read"), compiled_point(found)
    low, high = _reach([p["intensity"] for p in points] + [roof.ridge], 3)
    lowest = min(p["flops_per_s"] for p in points)
    bottom, top = _reach([lowest, max(roof.flops, sheet[1].flops if sheet else 0.0)], 4)
    axes = {"xaxis": _log("FLOPs for each byte moved", low, high), "yaxis": _log("FLOP/s", bottom, 2 * top)}
    margin = {**MARGIN, "t": 10}
    figure = go.Figure().update_layout(font_size=14, height=480, showlegend=False, margin=margin, **axes)
    _sides(figure, roof, low, high)
    read, most, rows = figure_of(roof.read, "B/s"), figure_of(roof.flops, "FLOP/s"), figure_of(row.read, "B/s")
    _roof(figure, roof, low, high, f"measured roof: {read}, {most}", ROOF, "solid")
    _roof(figure, row, low, high, f"a one-row product reads {rows}", ROOF, "dot")
    near_ridge = max(low, 0.75 * roof.ridge)
    _say(figure, f"<b>reading,<br>measured: {read}</b>", near_ridge, roof.at(near_ridge), ROOF, "right", "lead")
    _say(figure, f"a product of one row,<br>measured: {rows}", low, row.at(low), ROOF, "left", "top")
    if near:
        said = f"reading from the chip's own cache,<br>measured: {figure_of(near, 'B/s')}"
        _roof(
            figure, Roof(near, roof.flops), low, high, f"the chip's own cache: {figure_of(near, 'B/s')}", ROOF, "dash"
        )
        _say(figure, f"<b>{said}</b>", low, roof.flops, ROOF, "left", "bottom")
    _say(figure, f"<b>arithmetic,<br>measured: {most}</b>", high, roof.flops, ROOF, "right", "bottom")
    if sheet is not None:
        _sheet(figure, sheet, points, low, high)
    titles = names(points)
    for name, members in series(points).items():
        x, y = [p["intensity"] for p in members], [p["flops_per_s"] for p in members]
        words = {"customdata": [_told(p) for p in members], "hovertemplate": "%{customdata}<extra></extra>"}
        group = name == "context"
        marker = {"symbol": MARKERS[name], "size": GROUP if group else 10, "line_width": 0}
        look: dict[str, Any] = {"name": titles[name], "mode": "lines+markers", "marker": marker}
        look |= {"opacity": 0.3} if group else {"error_y": _spread(members)}
        if name in NUMBERS:
            look |= {"mode": "lines+markers+text", "text": [_number(p) for p in members[:-1]]}
            look |= {"textposition": NUMBERS[name], "textfont": {"size": 12, "color": COLOURS[name]}}
        line = {"color": COLOURS[name], "width": GROUP if group else 2, "dash": DASH.get(name, "solid")}
        figure.add_scatter(x=x, y=y, line=line, **look, **words)
        end = AT[name](members, key=lambda p: p["flops_per_s"]) if name in AT else members[-1]
        text = SAID[name].format(**members[-1])
        _say(figure, f"<b>{text}</b>", end["intensity"], end["flops_per_s"], COLOURS[name], *LIES[name])
    if compiled:
        colour = palette.LIGHT["compiled"]
        mark = {"symbol": palette.MARKER["compiled"], "size": 14, "color": colour}
        x, y = compiled["intensity"], compiled["flops_per_s"]
        told = f"<b>the same step, compiled</b><br>{millis(compiled['s'])}, {figure_of(y, 'FLOP/s')}"
        words = {"name": "compiled step", "hovertemplate": f"{told}<extra></extra>"}
        figure.add_scatter(x=[x], y=[y], mode="markers", marker=mark, **words)
        _say(figure, "<b>compiled</b>", x, y, colour, "right", "middle")
        if not near and y > roof.at(x):
            said = "compiled: its bytes stay<br>in the chip's cache"
            _say(figure, said, low, roof.flops, colour, "left", "bottom")
    return figure


def _say(figure: go.Figure, text: str, x: float, y: float, colour: str, xanchor: str, yanchor: str) -> None:
    """Write beside a place of logarithmic axes; with `yanchor` "lead" above it, at the end of a line from it."""
    if yanchor == "lead":
        line = {
            "arrowhead": 0,
            "arrowcolor": colour,
            "arrowwidth": 1,
            "standoff": 7,
            "ax": {"left": 20, "right": -14}[xanchor],
            "ay": -52,
        }
        at = {"x": math.log10(x), "y": math.log10(y), "xanchor": xanchor, "yanchor": "bottom"}
        figure.add_annotation(text=text, showarrow=True, align="left", font_color=colour, **line, **at)
        return
    shift = {"xshift": {"left": 12, "right": -8}.get(xanchor, 0), "yshift": {"top": -8, "bottom": 6}.get(yanchor, 0)}
    where = {"x": math.log10(x), "y": math.log10(y), "xanchor": xanchor, "yanchor": yanchor, **shift}
    figure.add_annotation(text=text, showarrow=False, align="left", font_color=colour, **where)


def _sides(figure: go.Figure, roof: Roof, low: float, high: float) -> None:
    """Shade what lies left of the ridge, and say on both sides what limits a forward there that reaches its roof."""
    if not low < roof.ridge < high:
        return
    figure.add_vrect(x0=low, x1=roof.ridge, fillcolor=ROOF, opacity=0.10, line_width=0, layer="below")
    look = {
        "yref": "paper",
        "y": 1,
        "yanchor": "top",
        "showarrow": False,
        "font_color": ROOF,
        "x": math.log10(roof.ridge),
    }
    figure.add_annotation(text="at best limited<br>by bytes", align="right", xanchor="right", xshift=-8, **look)
    figure.add_annotation(text="at best limited<br>by arithmetic", align="left", xanchor="left", xshift=8, **look)
    look |= {"y": 0, "yanchor": "bottom"}
    figure.add_annotation(text=f"<b>ridge, {roof.ridge:.2g} FLOP/B</b>", xanchor="left", xshift=8, **look)


def _reach(values: Iterable[float], beyond: float) -> tuple[float, float]:
    kept = list(values)
    return min(kept) / beyond, max(kept) * beyond


def _log(title: str, low: float, high: float) -> dict[str, Any]:
    size, prefix = scaled(high) if title == "FLOP/s" else (1, "")
    steps = (1,) if high > 1e4 * low or prefix else (1, 2, 5)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**power for power in powers for step in steps]
    return {
        "title": prefix + title,
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "tickvals": ticks,
        "ticktext": [f"{tick / size:,g}" for tick in ticks],
        "automargin": True,
    }


def _roof(figure: go.Figure, roof: Roof, low: float, high: float, name: str, colour: str, dash: str) -> None:
    xs = sorted({low, high, min(max(roof.ridge, low), high)})
    words = f"{as_text(name)}: %{{y:.3s}}FLOP/s at %{{x:.3g}} FLOP/B<extra></extra>"
    line = {"color": colour, "width": 2.5 if dash == "solid" else 2, "dash": dash}
    figure.add_scatter(x=xs, y=[roof.at(x) for x in xs], name=name, mode="lines", line=line, hovertemplate=words)


def _sheet(figure: go.Figure, sheet: tuple[str, Roof], points: Points, low: float, high: float) -> None:
    title, roof = sheet
    _roof(figure, roof, low, high, f"{title}, by its data sheet", ROOF, "longdashdot")
    _say(figure, f"<b>{as_text(title)},<br>its data sheet</b>", high, roof.at(high), ROOF, "right", "bottom")
    x = [p["intensity"] for p in points]
    look = {"mode": "markers", "marker": {"symbol": "circle-open", "size": 8, "color": ROOF}}
    words = {"name": "these forwards there, at most"}
    words["hovertemplate"] = "%{x:.3g} FLOP/B: at most %{y:.3s}FLOP/s<extra></extra>"
    figure.add_scatter(x=x, y=[roof.at(each) for each in x], **look, **words)


def _told(p: Mapping[str, Any]) -> str:
    what = "prefill of" if p["phase"] == PREFILL else "decode step at"
    batch = f" × {p['batch']} sequences" if p["batch"] > 1 else ""
    return (
        f"<b>{what} {p['tokens']:,} tokens{batch}</b><br>{millis(p['s'])}, {p['intensity']:.3g} FLOP/B<br>"
        f"{figure_of(p['flops_per_s'], 'FLOP/s')}, {p['roof_share']:.0%} of the roof"
    )


def _number(p: Mapping[str, Any]) -> str:
    """Return the number beside a point: a prefill's tokens, or the batch of a decode step if it is more than 1."""
    return f"{p['tokens']:,}" if p["phase"] == PREFILL else f"{p['batch']}" if p["batch"] > 1 else ""


def _spread(members: Points) -> dict[str, Any]:
    """Error bars for the quartiles of the repeats."""
    rates = [(p["flops"] / p["s_q1"] - p["flops_per_s"], p["flops_per_s"] - p["flops"] / p["s_q3"]) for p in members]
    up, down = zip(*rates, strict=True)
    return {"type": "data", "array": up, "arrayminus": down, "symmetric": False, "thickness": 1, "width": 3}


def batch_figure(points: Points, marks: Mapping[int, int | None]) -> go.Figure:
    """Draw tokens per second against the batch at both contexts.

    `marks`: by context, the smallest batch at which a decode step reads more cache bytes than weight bytes.
    """
    batches = sorted({p["batch"] for p in points})
    figure = blank("sequences decoded together", "tokens/s, all together", height=380, hovermode="x unified")
    figure.update_xaxes(type="log", tickvals=batches, ticktext=batches)
    for name, members in series(points).items():
        if name not in ("short", "long"):
            continue
        tokens, colour, y = members[0]["tokens"], COLOURS[name], [p["tokens_per_s"] for p in members]
        hover = f"context {tokens:,}: %{{y:,.0f}} tokens/s, %{{customdata:.2f}} times one sequence"
        line = {"color": colour, "width": 2, "dash": DASH.get(name, "solid")}
        look = {"mode": "lines+markers", "line": line, "hovertemplate": hover}
        look |= {"marker": {"symbol": MARKERS[name], "size": 9}, "customdata": [rate / y[0] for rate in y]}
        figure.add_scatter(x=[p["batch"] for p in members], y=y, name=f"context {tokens:,}", **look)
        batch = marks.get(tokens)
        if batch and batch <= members[-1]["batch"]:
            figure.add_vline(x=batch, line={"dash": "dot", "width": 1.5, "color": colour})
            # on a logarithmic axis, an annotation's x is a logarithm
            place = {"x": math.log10(batch), "y": 1, "yref": "paper", "xanchor": "left", "yanchor": "top", "xshift": 8}
            text = f"caches > weights<br>at {tokens:,} tokens"
            figure.add_annotation(text=text, align="left", font_color=colour, showarrow=False, **place)
    return name_ends(figure)


def profile_figure(profiles: Points) -> go.Figure:
    """Draw each profiled forward as a bar of its milliseconds, divided by kind of work; all on one scale."""
    axes = {"xaxis": {"ticksuffix": " ms", "automargin": True}, "yaxis": {"automargin": True}}
    bars = {"barmode": "stack", "bargap": 0.35, "margin": {"l": 10, "r": 70, "t": 10, "b": 10}}
    figure = go.Figure().update_layout(font_size=14, height=300, showlegend=False, **bars, **axes)
    rows = list(reversed(profiles))
    for name, (title, colour) in CLASSES.items():
        x = [1e3 * p["classes"][name] for p in rows]
        shares = [p["classes"][name] / p["wall_s"] for p in rows]
        look = {"orientation": "h", "marker": {"color": colour, "line": {"width": 0}}}
        words = {"name": title, "hovertemplate": f"{title}: %{{x:.3g}} ms, %{{customdata:.0%}}<extra></extra>"}
        figure.add_bar(x=x, y=[FORWARDS[p["forward"]] for p in rows], customdata=shares, **look, **words)
    for p in rows:
        total = {"text": f" {millis(p['wall_s'])}", "xanchor": "left", "showarrow": False}
        figure.add_annotation(x=1e3 * p["wall_s"], y=FORWARDS[p["forward"]], **total)
    return figure
