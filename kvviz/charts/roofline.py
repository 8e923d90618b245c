"""Draws the figures of the roofline page from a document's points and profiles."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import plotly.graph_objects as go

from kvviz.base.words import millis, ratio, two_digits
from kvviz.charts import palette
from kvviz.charts.cost import figure_of, scaled
from kvviz.charts.layout import MARGIN, as_text, blank, fit_heights, name_ends
from kvviz.cost.roofline import DECODE, PREFILL, Roof, parts
from kvviz.experiments.roofline.spec import SHORT
from kvviz.experiments.roofline.words import at_longest, compiled_point, per_byte

COLOURS = {"prefill": palette.PREFILL, **dict.fromkeys(("short", "long"), palette.DECODE)}
MARKERS = {"prefill": "diamond", "short": "triangle-up", "long": "square"}
SAID = {"prefill": ("<b>prefill</b><br>", "tokens"), "long": ("<b>decode step</b><br>", "sequences")}
ROOF = palette.REFERENCE
GRID = "rgba(92, 102, 114, 0.18)"  # of the roof's colour
CLASSES = {
    "weights": ("products with the weights", palette.PRODUCTS),
    "attention": ("attention", palette.ATTENTION),
    "cache": ("cache update", palette.NEW),
    "other": ("norms, activations, sampling …", palette.ELSE),
    "call": ("the whole step as one call", palette.LIGHT["compiled"]),
    "gaps": ("between operations, at most", palette.FREE),
}
SPENT = {  # the parts of a forward's time
    "memory": "reading",
    "compute": "arithmetic",
    "slower": "slower reading",
    "copying": "copying the cache (torch.cat)",
    "unknown": "not explained",
    "launch": "launch",
    "rest": "norms, activations and sampling",
}
PIECES = {  # of a bar, in colours on which dark words can be read
    "memory": ("reading", palette.DARK["cached"]),
    "compute": ("arithmetic", palette.NEW),
    "launch": ("launch", palette.FREE),
    "rest": ("the rest", palette.ELSE),
}
NARROW, LETTER = 320, 6.5  # pixels of a bar on a phone and of a letter in it
ROW, THICK = 78, 0.56  # pixels of a bar's row; in rows: a bar
AXIS = 54  # pixels of the numbers and the title below bars
TITLES = {DECODE: "decode step at {tokens:,} tokens", PREFILL: "prefill of {tokens:,} tokens"}
FORWARDS = {
    "prefill": "prefill",
    "decode": "decode step,<br>KV cache",
    "compiled step": "decode step,<br>compiled",
    "uncached step": "decode step,<br>no cache",
}
Points = Sequence[Mapping[str, Any]]


class Pass(NamedTuple):
    """A forward pass: its name with its time, its seconds, those of each part of `SPENT`, and the rate of the first."""

    name: str
    seconds: float
    spent: Mapping[str, float]
    rate: str


def series(points: Points) -> dict[str, list[Mapping[str, Any]]]:
    """Sort the points into three series: growing prompts, and growing batches at two contexts."""
    steps = [p for p in points if p["phase"] == DECODE]
    longest = max(p["tokens"] for p in steps)
    found = {
        "prefill": sorted((p for p in points if p["phase"] == PREFILL), key=lambda p: p["tokens"]),
        "short": sorted((p for p in steps if p["tokens"] == SHORT), key=lambda p: p["batch"]),
        "long": sorted((p for p in steps if p["tokens"] == longest), key=lambda p: p["batch"]),
    }
    return {name: row for name, row in found.items() if len(row) > 1 or name == "long"}


def roofline_figure(found: Mapping[str, Any], sheet: tuple[str, Roof] | None = None) -> go.Figure:
    """Draw FLOP/s against FLOP/B on logarithmic axes: the measured roof, prefills, and growing batches' decode steps.

    The steps are those at the longest context, of which the bars beside the chart speak too. A compiled step is a
    hollow mark of its own. `sheet`: the name and advertised roof of an accelerator, drawn with the most that it allows
    each point.
    """
    points, roof, compiled = found["points"], Roof(**found["roof"]), compiled_point(found)
    rows = {name: row for name, row in series(points).items() if name != "short"}
    drawn = [p for row in rows.values() for p in row]
    low, high = min(p["intensity"] for p in [*drawn, {"intensity": roof.ridge}]) / 6, 3 * roof.ridge
    high = max(high, *(3 * p["intensity"] for p in drawn))
    bottom = min(p["flops_per_s"] for p in drawn) / 5
    top = 3 * max(roof.flops, sheet[1].flops if sheet else 0.0)
    axes = {
        "xaxis": _log("FLOPs per byte (FLOP/B); both scales are log", low, high),
        "yaxis": _log("FLOP/s", bottom, top),
    }
    margin = {**MARGIN, "t": 10, "r": 10}
    figure = go.Figure().update_layout(font_size=14, height=360, showlegend=False, margin=margin, **axes)
    figure.update_yaxes(gridcolor=GRID)  # so light that it does not strike out what is written at the roof
    _sides(figure, roof, low, high)
    read, most = figure_of(roof.read, "B/s"), figure_of(roof.flops, "FLOP/s")
    _roof(figure, roof, low, high, f"measured roof: {read}, {most}", "solid")
    if sheet is not None:
        _sheet(figure, sheet, drawn, low, high)
    for name, members in rows.items():
        colour = COLOURS[name]
        x, y = [p["intensity"] for p in members], [p["flops_per_s"] for p in members]
        words = {"customdata": [_told(p) for p in members], "hovertemplate": "%{customdata}<extra></extra>"}
        title = "prefill" if name == "prefill" else "decode"
        look = {"name": title, "marker": {"symbol": MARKERS[name], "size": 10}, "line": {"color": colour, "width": 2}}
        figure.add_scatter(x=x, y=y, mode="lines+markers", error_y=_spread(members), **look, **words)
        said, unit = SAID[name]
        size, end = ("tokens", -1) if name == "prefill" else ("batch", 0)
        said += _reach([p[size] for p in members], unit)
        said += f"<br>at {members[0]['tokens']:,} tokens" if size == "batch" else ""
        _say(figure, said, x[end], y[end], colour, "center", "top", beyond=(-26 if end else 10, 6))
    if compiled:
        colour, x, y = COLOURS["long"], compiled["intensity"], compiled["flops_per_s"]
        mark = {"symbol": f"{MARKERS['long']}-open", "size": 11, "color": colour, "line": {"width": 2}}
        told = f"<b>the same step, compiled</b><br>{millis(compiled['s'])}, {figure_of(y, 'FLOP/s')}"
        words = {"name": "compiled step", "hovertemplate": f"{told}<extra></extra>"}
        figure.add_scatter(x=[x], y=[y], mode="markers", marker=mark, **words)
        room = roof.at(x) > y > 1.5 * rows["long"][0]["flops_per_s"]
        side, lift = ("right", roof.at(x)) if room else ("center", y)  # beyond the slanted roof, which it would cross
        _say(figure, "<b>compiled</b>", x, lift, colour, side, "bottom")
    return figure


def _reach(sizes: Sequence[int], unit: str) -> str:
    """Say what a line's points are, from the first to the last; of one alone."""
    first, last = sizes[0], sizes[-1]
    return f"of {first:,} → {last:,} {unit}" if first < last else f"of {last:,} {unit if last > 1 else unit[:-1]}"


def longest(points: Points, phase: str) -> Mapping[str, Any]:
    """Return the point of one sequence of this phase with the most tokens."""
    return max((p for p in points if p["phase"] == phase and p["batch"] == 1), key=lambda p: p["tokens"])


GAIN = 1.25  # times as many tokens a second by twice the sequences: less is little


def slow_start(points: Points) -> dict[int, float] | None:
    """Return the seconds of a decode step by batch, at the longest context, if two sequences gain little over one."""
    took = {p["batch"]: p["s"] for p in at_longest(points)}
    return took if 2 in took and 2 * took[1] / took[2] <= GAIN else None


def waiting(found: Mapping[str, Any]) -> list[Pass]:
    """Divide the time of the longest decode step and prefill.

    The profiler's shares divide the time that the forward takes without it, since what it adds slows a forward down.
    Products and attention are reading or arithmetic: the least time at the roof's rate, what a product of one row,
    measured by itself, takes beyond it ("slower"), and what nothing explains. A cache's update copies it. In the gaps
    no operation ran: the launches, at most. The rest are norms and the like. Without a profile, and in the compiled
    step, which is one call, what the rates don't explain is the rest. That step reads from the chip's cache, at the
    rate measured there, if it is faster than memory allows; without that rate it is left out.
    """
    roof, row, starting = Roof(**found["roof"]), Roof(**found["row"]), found["starting_s"]
    most = {phase: longest(found["points"], phase) for phase in (DECODE, PREFILL)}
    forwards = [(DECODE, most[DECODE], roof, row, starting)]
    if call := compiled_point(found):
        near = Roof(read, roof.flops) if (read := compiled_read(found)) else None
        forwards += [("the same step, compiled", call, near, near, 0.0)] if near else []
    forwards.append((PREFILL, most[PREFILL], roof, row, starting))
    told = {profile["forward"]: profile for profile in found["profiles"]}
    divided = []
    for name, p, over, line, least in forwards:
        spent = _divided(p, over, line, least, told.get(name))
        rate = figure_of(line.read, "B/s") if "memory" in spent else figure_of(line.flops, "FLOP/s")
        title = f"{TITLES.get(name, name).format(tokens=p['tokens'])}: {millis(p['s'])}"
        divided.append(Pass(title, p["s"], spent, rate))
    return divided


def compiled_read(found: Mapping[str, Any]) -> float | None:
    """Return the bytes/s at which the compiled step's reading is counted: the roof's, or the chip's cache's if the step
    is faster than memory allows; None without a compiled step, and without that measurement.
    """
    call, roof = compiled_point(found), Roof(**found["roof"])
    if call is None:
        return None
    return found.get("near_read") if call["s"] < roof.least(call) else roof.read


def _divided(
    p: Mapping[str, Any], roof: Roof, row: Roof, starting: float, profile: Mapping[str, Any] | None
) -> dict[str, float]:
    found = parts(p, row, starting)
    side, launch, copying, rest = next(iter(found)), found["launch"], 0.0, found["between"]
    if profile:
        shares = {name: s / profile["wall_s"] for name, s in profile["classes"].items()}
        launch, copying, rest = (shares[name] * p["s"] for name in ("gaps", "cache", "other"))
    work = p["s"] - launch - copying - rest
    fast, known = (min(work, line.least(p)) for line in (roof, row))
    found = {side: fast, "slower": known - fast, "copying": copying, "unknown": work - known}
    return {**found, "launch": launch, "rest": rest}


def pieces(seconds: float, spent: Mapping[str, float]) -> dict[str, float]:
    """Divide a bar, in shares: reading or arithmetic, at what a product was measured to reach; launches, if their name
    has room; and the rest.
    """
    side, launch = next(iter(spent)), spent["launch"] / seconds
    found = {side: (spent[side] + spent.get("slower", 0.0)) / seconds}
    found |= {"launch": launch} if _fits(PIECES["launch"][0], launch) else {}
    return {**found, "rest": max(0.0, 1 - sum(found.values()))}


def waiting_figure(rows: Sequence[Pass]) -> go.Figure:
    """Draw each forward's time as a bar, divided into what it waits for, its name and time above.

    The last, a prefill, has a scale of its own below the others, which share one. A piece that is too narrow for its
    name shows its share alone, if that fits; both then follow the bar's name. A last piece is named behind its bar, if
    there is room. The first tells its rate, if there is room.
    """
    scales = [rows[:-1], rows[-1:]] if len(rows) > 1 else [rows]
    tall = ROW * len(rows) + AXIS * (len(scales) - 1)
    figure = go.Figure().update_layout(font_size=14, height=tall + AXIS, showlegend=False, barmode="stack")
    figure.update_layout(margin={"l": 14, "r": 22, "t": 0, "b": AXIS})
    top = tall
    for number, members in enumerate(scales, 1):
        axis = "" if number == 1 else str(number)
        longest_s = max(each.seconds for each in members)
        foot = top - ROW * len(members)
        beside = f", {ratio(longest_s / rows[0].seconds)} times as long" if number > 1 else ""
        across = {
            "title": "ms" if number == 1 else "ms, on another scale",
            "range": [0, 1e3 * longest_s],
            "showgrid": False,
            "anchor": f"y{axis}",
        }
        figure.update_layout({f"xaxis{axis}": across})
        along = {"visible": False, "range": [len(members) - 0.65, -0.65], "anchor": f"x{axis}"}
        figure.update_layout({f"yaxis{axis}": along | {"domain": [foot / tall, top / tall]}})
        _bars(figure, members, longest_s, {"xaxis": f"x{axis}", "yaxis": f"y{axis}"}, beside)
        top = foot - AXIS
    return figure


def untold(rows: Sequence[Pass]) -> list[str]:
    """The rates for which the bars of `waiting_figure` have no room, with what goes on at them."""
    most = max(each.seconds for each in rows[:-1] or rows)  # the last has a scale of its own
    said = []
    for each in rows:
        part, share = next(iter(pieces(each.seconds, each.spent).items()))
        words = f"{PIECES[part][0]} at {each.rate}"
        if each.rate and each.rate not in _named(PIECES[part][0], share, min(1.0, each.seconds / most), each.rate):
            said.append(words)
    return said


def _bars(figure: go.Figure, rows: Sequence[Pass], most: float, on: dict, beside: str) -> None:
    """Draw forwards on one scale, which ends at `most` seconds; `on` names its axes, `beside` follows each name."""
    shares = [pieces(each.seconds, each.spent) for each in rows]
    wide = [each.seconds / most for each in rows]
    last, _ = PIECES["rest"]
    behind = [_behind(last, bar["rest"], width) for bar, width in zip(shares, wide, strict=True)]
    for part, (title, colour) in PIECES.items():
        x = [bar.get(part, 0.0) for bar in shares]
        if not any(x):
            continue
        look: dict[str, Any] = {"orientation": "h", "marker": {"color": colour, "line": {"width": 0}}, "name": title}
        first = [each.rate if part in each.spent and part in ("memory", "compute") else "" for each in rows]
        named = [_named(title, *each) for each in zip(x, wide, first, strict=True)]
        if title == last:
            named = [inside * (not after) for inside, after in zip(named, behind, strict=True)]
        look |= {"text": named, "textangle": 0, "textposition": "inside", "insidetextanchor": "middle"}
        look["insidetextfont"] = {"color": palette.ON_PALE, "size": 14}
        look["customdata"] = [f"{each.name}<br>{title}: {share:.0%}" for each, share in zip(rows, x, strict=True)]
        look["hovertemplate"] = "%{customdata}<extra></extra>"
        ms = [1e3 * each.seconds * share for each, share in zip(rows, x, strict=True)]
        figure.add_bar(x=ms, y=list(range(len(rows))), width=THICK, **look, **on)
    where: dict[str, Any] = {f"{axis[0]}ref": of for axis, of in on.items()} | {"xanchor": "left", "showarrow": False}
    for place, (each, bar, width, after) in enumerate(zip(rows, shares, wide, behind, strict=True)):
        small = [part for part, s in bar.items() if s >= 0.005 and not _fits(PIECES[part][0], s * width)]
        known = after or (beside and _named("", bar["rest"], width))  # the bars above name the colour of the rest
        above = "".join(f", {PIECES[part][0]} {bar[part]:.0%}" for part in small if not (part == "rest" and known))
        text = f"<b>{each.name}</b>{beside}{above}"
        figure.add_annotation(text=text, x=0, y=place - THICK / 2 - 0.02, yanchor="bottom", **where)
        if after:
            figure.add_annotation(text=after, x=1e3 * each.seconds, y=place, xshift=4, **where)


def _fits(name: str, share: float) -> bool:
    """Whether a piece's name fits into it, also on a phone."""
    return share * NARROW >= LETTER * len(name)


def _behind(title: str, share: float, width: float) -> str:
    """The name and share of a bar's last piece if it is too narrow for them and there is room behind the bar."""
    words = f"{title} {share:.0%}"
    return words if share >= 0.005 and not _fits(title, share * width) and _fits(words, 1 - width) else ""


def _named(title: str, share: float, width: float, rate: str = "") -> str:
    """What a piece has room for in a bar of this width: name, share and rate; name and share; its share; or nothing."""
    words, room = f"{share:.0%}", share * width
    if rate and all(_fits(line, room) for line in (f"{title} {words}", f"at {rate}")):
        return f"{title} {words}<br>at {rate}"
    return f"{title}<br>{words}" if _fits(title, room) else words if _fits(words, room) else ""


def _say(
    figure: go.Figure,
    text: str,
    x: float,
    y: float,
    colour: str,
    xanchor: str,
    yanchor: str,
    beyond: tuple[int, int] = (0, 0),
) -> None:
    """Write beside a place of logarithmic axes; `beyond`: pixels to the right and down from where it would stand."""
    right, down = beyond
    shift = {
        "xshift": {"left": 10, "right": -8}.get(xanchor, 0) + right,
        "yshift": {"top": -8, "bottom": 6}.get(yanchor, 0) - down,
    }
    where = {"x": math.log10(x), "y": math.log10(y), "xanchor": xanchor, "yanchor": yanchor, **shift}
    figure.add_annotation(text=text, showarrow=False, align=xanchor, font_color=colour, **where)


def _sides(figure: go.Figure, roof: Roof, low: float, high: float) -> None:
    """Shade both sides of the ridge in the colours of what sets the roof there, and name them."""
    if not low < roof.ridge < high:
        return
    look: dict[str, Any] = {"yref": "paper", "y": 1, "yanchor": "top", "showarrow": False, "font_color": ROOF}
    look["x"] = math.log10(roof.ridge)
    for start, end, part, words, side, shift in (
        (low, roof.ridge, "memory", f"memory sets<br>the roof: {figure_of(roof.read, 'B/s')}", "right", -8),
        (roof.ridge, high, "compute", f"arithmetic sets<br>the roof: {figure_of(roof.flops, 'FLOP/s')}", "left", 8),
    ):
        figure.add_vrect(x0=start, x1=end, fillcolor=PIECES[part][1], opacity=0.08, line_width=0, layer="below")
        figure.add_annotation(text=words, align=side, xanchor=side, xshift=shift, **look)
    look |= {"y": 0, "yanchor": "bottom"}
    figure.add_annotation(text=f"<b>ridge: {per_byte(roof.ridge)} FLOP/B</b>", xanchor="left", xshift=8, **look)


def _log(title: str, low: float, high: float) -> dict[str, Any]:
    size, prefix = scaled(high) if title == "FLOP/s" else (1, "")
    steps = (1,) if high > 1e4 * low else (1, 2, 5)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**power for power in powers for step in steps]
    if title == "FLOP/s":  # no grid line where the ridge is named and, above the roof, its sides
        ticks = [tick for tick in ticks if 2 * low < tick < high / 2]
    return {
        "title": prefix + title,
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "tickvals": ticks,
        "ticktext": [f"{tick / size:,g}" for tick in ticks],
        "automargin": True,
    }


def _roof(figure: go.Figure, roof: Roof, low: float, high: float, name: str, dash: str) -> None:
    xs = sorted({low, high, min(max(roof.ridge, low), high)})
    words = f"{as_text(name)}: %{{y:.3s}}FLOP/s at %{{x:.3g}} FLOP/B<extra></extra>"
    line = {"color": ROOF, "width": 2.5 if dash == "solid" else 2, "dash": dash}
    figure.add_scatter(x=xs, y=[roof.at(x) for x in xs], name=name, mode="lines", line=line, hovertemplate=words)


def _sheet(figure: go.Figure, sheet: tuple[str, Roof], points: Points, low: float, high: float) -> None:
    title, roof = sheet
    _roof(figure, roof, low, high, f"{title}, by its data sheet", "dash")
    _say(figure, f"<b>{as_text(title)},<br>its data sheet</b>", high, roof.at(high), ROOF, "right", "bottom")
    x = [p["intensity"] for p in points]
    look = {"mode": "markers", "marker": {"symbol": "circle-open", "size": 8, "color": ROOF}}
    words = {"name": "these forward passes there, at most"}
    words["hovertemplate"] = "%{x:.3g} FLOP/B: at most %{y:.3s}FLOP/s<extra></extra>"
    figure.add_scatter(x=x, y=[roof.at(each) for each in x], **look, **words)


def _told(p: Mapping[str, Any]) -> str:
    what = "prefill of" if p["phase"] == PREFILL else "decode step at"
    batch = f" × {p['batch']} sequences" if p["batch"] > 1 else ""
    return (
        f"<b>{what} {p['tokens']:,} tokens{batch}</b><br>{millis(p['s'])}, {p['intensity']:.3g} FLOP/B<br>"
        f"{figure_of(p['flops_per_s'], 'FLOP/s')}, {p['roof_share']:.0%} of the roof"
    )


def _spread(members: Points) -> dict[str, Any]:
    """Error bars for the quartiles of the repeats."""
    rates = [(p["flops"] / p["s_q1"] - p["flops_per_s"], p["flops_per_s"] - p["flops"] / p["s_q3"]) for p in members]
    up, down = zip(*rates, strict=True)
    return {"type": "data", "array": up, "arrayminus": down, "symmetric": False, "thickness": 1, "width": 3}


def uncached_rates(found: Mapping[str, Any]) -> dict[int, list[tuple[int, float]]]:
    """By context of the growing batches: (batch, most tokens/s without a cache), by formula.

    A step without a cache computes what a prefill over its text does. A batch of b does b times the FLOPs and moves b
    times the bytes, but reads the weights once; b tokens take at least the time that the roof allows this work.
    """
    roof, rows = Roof(**found["roof"]), series(found["points"])
    alone = {p["tokens"]: p for p in rows.get("prefill", ())}
    rates = {}
    for members in (rows[name] for name in ("short", "long") if name in rows):
        if p := alone.get(tokens := members[0]["tokens"]):
            weights = p["weight_bytes"]
            rates[tokens] = [
                (b, b / roof.least({"flops": b * p["flops"], "bytes": weights + b * (p["bytes"] - weights)}))
                for b in (m["batch"] for m in members)
            ]
    return rates


def uncached_alone(found: Mapping[str, Any]) -> dict[int, float]:
    """By context of the growing batches: the measured tokens/s of one sequence without a cache, a prefill for each."""
    alone = {p["tokens"]: p["s"] for p in series(found["points"]).get("prefill", ())}
    return {tokens: 1 / alone[tokens] for tokens in uncached_rates(found)}


def batch_figure(found: Mapping[str, Any]) -> go.Figure:
    """Draw tokens per second against the batch at both contexts: measured with the cache, at most without."""
    points = found["points"]
    batches = sorted({p["batch"] for p in points})
    scale = "twice as many at each mark" if all(b == 2 * a for a, b in pairwise(batches)) else "log scale"
    figure = blank(
        f"sequences decoded together<br>({scale})",
        "tokens/s of all together, not compiled",
        height=360,
        margin_t=18,  # the highest label stands half above its line
        hovermode="x unified",
    )
    figure.update_xaxes(type="log", tickvals=batches, ticktext=batches)
    for name, members in series(points).items():
        if name not in ("short", "long"):
            continue
        tokens, colour, y = members[0]["tokens"], COLOURS[name], [p["tokens_per_s"] for p in members]
        hover = f"context {tokens:,}: %{{y:,.0f}} tokens/s, %{{customdata:.2f}} times one sequence"
        look = {"mode": "lines+markers", "line": {"color": colour, "width": 2}, "hovertemplate": hover}
        look |= {"marker": {"symbol": MARKERS[name], "size": 9}, "customdata": [rate / y[0] for rate in y]}
        name = f"KV cache at {tokens:,}" + (f":<br>{ratio(y[-1] / y[0])} times one" if len(members) > 1 else "")
        figure.add_scatter(x=[p["batch"] for p in members], y=y, name=name, **look)
    for tokens, rates in uncached_rates(found).items():
        widths, most = zip(*rates, strict=True)
        hover = f"no cache, context {tokens:,}: at most %{{y:,.2g}} tokens/s, by formula"
        line = {**palette.line("uncached"), "dash": "dash"}
        name = f"no cache at {tokens:,}:<br>at most {two_digits(max(most))}"
        figure.add_scatter(x=widths, y=most, mode="lines", line=line, name=name, hovertemplate=hover)
    fit_heights(figure)
    return name_ends(figure)


def profile_figure(profiles: Points) -> go.Figure:
    """Draw each profiled forward as a bar of its milliseconds, divided by kind of work; all on one scale."""
    axes = {"xaxis": {"ticksuffix": " ms", "automargin": True}, "yaxis": {"automargin": True}}
    bars = {"barmode": "stack", "bargap": 0.35, "margin": {"l": 10, "r": 70, "t": 10, "b": 10}}
    figure = go.Figure().update_layout(font_size=14, height=45 * len(profiles) + 120, showlegend=False, **bars, **axes)
    rows = list(reversed(profiles))
    for name, (title, colour) in CLASSES.items():
        x = [1e3 * p["classes"][name] for p in rows]
        shares = [p["classes"][name] / p["wall_s"] for p in rows]
        look = {"orientation": "h", "marker": {"color": colour, "line": {"width": 0}}}
        words = {"name": title, "hovertemplate": f"{title}: %{{x:.3g}} ms, %{{customdata:.0%}}<extra></extra>"}
        figure.add_bar(x=x, y=[_forward(p) for p in rows], customdata=shares, **look, **words)
    for p in rows:
        total = {"text": f" {millis(p['wall_s'])}", "xanchor": "left", "showarrow": False}
        figure.add_annotation(x=1e3 * p["wall_s"], y=_forward(p), **total)
    return figure


def _forward(p: Mapping[str, Any]) -> str:
    """Name a profiled forward in two lines."""
    return FORWARDS.get(p["forward"], f"decode step,<br>{p['forward']}")
