"""Draws latency curves: of a comparison, of a watched run, and of several runs over one another."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import median
from typing import Any, TypeVar

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from kvviz.base.words import brief, human
from kvviz.charts import palette
from kvviz.charts.layout import DOTTED, FEW, LEGEND, MARGIN, as_text, blank, name_ends
from kvviz.charts.memory import unit_for
from kvviz.decoding.modes import title_of

T = TypeVar("T")


def latency_figure(document: Mapping[str, Any], *, log: bool = False) -> go.Figure:
    """Draw the milliseconds per new token of every run of a comparison: medians with quartile bands."""
    kind, margin = "log" if log else "linear", {"t": 40, "r": 20}
    figure = blank("new token", "ms for this token", yaxis_type=kind, hovermode="closest", margin=margin, **_PAPER)
    for run in document["runs"]:
        _add_run(figure, run)
    return figure


_PAPER = {"template": "plotly_white", "font_size": 15}  # for a notebook


def _add_run(figure: go.Figure, run: Mapping[str, Any]) -> None:
    name, line = run["mode"], palette.line(run["mode"])
    x = list(range(1, len(run["step_s"]) + 1))
    low, high = _ms(run["step_s_q1"]), _ms(run["step_s_q3"])
    band = {"fill": "toself", "fillcolor": line["color"], "opacity": 0.18, "mode": "none", "hoverinfo": "skip"}
    figure.add_scatter(x=x + x[::-1], y=high + low[::-1], showlegend=False, **band)
    marker = {"symbol": palette.MARKER.get(name, "cross"), "size": [11] + [5] * (len(x) - 1)}
    words = {"text": [_hover(run, i) for i in range(len(x))], "hoverinfo": "text"}
    look = {"mode": "lines+markers", "line": line, "marker": marker}
    figure.add_scatter(x=x, y=_ms(run["step_s"]), name=as_text(title_of(name, run.get("engine"))), **look, **words)


def _ms(seconds: list[float]) -> list[float]:
    return [s * 1000 for s in seconds]


def _hover(run: Mapping[str, Any], i: int) -> str:
    phase = "decode step" if i else "prefill"
    cache = f"<br>cache: {run['cache_bytes'][i]:,} B" if run["cache_bytes"] else ""
    return f"{phase}, token {i + 1}<br>{run['step_s'][i] * 1000:.2f} ms{cache}"


def watched_figure(steps: Sequence[Any]) -> go.Figure:
    """Draw the milliseconds and cache bytes of each forward of a watched run, on two axes with units."""
    x = [step.index + 1 for step in steps]
    text = [f"{step.phase}, {len(step.fed[0]) if step.fed else 0} tokens fed" for step in steps]
    times, sizes = _ms([step.seconds for step in steps]), [step.cache_bytes / 2**20 for step in steps]
    right = {"title": "cache, MiB", "overlaying": "y", "side": "right", "rangemode": "tozero", "showgrid": False}
    figure = blank("forward pass", "ms for this forward pass", yaxis2=right, margin=None, **_PAPER)
    line = {"color": palette.LIGHT["watched"], "width": 2.5}
    figure.add_scatter(x=x, y=times, text=text, name="time", mode="lines+markers", line=line)
    return figure.add_scatter(x=x, y=sizes, name="cache", yaxis="y2", line={"color": "#777777", "dash": "dot"})


@dataclass(frozen=True)
class Curve:
    """One run to draw: seconds of each step (median, quartiles), cache bytes after each step.

    The first step is the prefill of `prompt_tokens` tokens. `repeats` are the seconds of each pass, where those are
    known.
    """

    name: str
    step_s: tuple[float, ...]
    q1_s: tuple[float, ...]
    q3_s: tuple[float, ...]
    cache_bytes: tuple[int, ...]
    prompt_tokens: int
    predicted_s: tuple[float, ...] = ()
    mode: str = ""
    repeats: tuple[tuple[float, ...], ...] = ()

    @property
    def so_far(self) -> list[float]:
        """Seconds from the start to the end of each step: the median over the passes, or the sum of the steps."""
        return [median(column) for column in zip(*map(accumulate, self._passes), strict=True)]

    @property
    def total_s(self) -> float:
        """Seconds of the whole run, where `so_far` ends."""
        return median(map(sum, self._passes))

    @property
    def _passes(self) -> Sequence[tuple[float, ...]]:
        return [seconds for seconds in self.repeats if len(seconds) == len(self.step_s)] or [self.step_s]

    def x(self, by: str) -> list[int]:
        """The x value of each step: its number, or the position of the token that it writes."""
        start = self.prompt_tokens if by == "position" else 0
        return [start + i + 1 for i in range(len(self.step_s))]


def curve_of(
    run: Mapping[str, Any], prompt_tokens: int, name: str, repeats: tuple[tuple[float, ...], ...] = ()
) -> Curve:
    """Turn a run of a comparison document into a curve."""
    steps, low, high = (tuple(run[f"step_s{part}"]) for part in ("", "_q1", "_q3"))
    held, predicted = (tuple(run.get(part) or ()) for part in ("cache_bytes", "predicted_s"))
    return Curve(name, steps, low, high, held, prompt_tokens, predicted, run["mode"], repeats)


WIDE = 9  # steps of a running median
WIDE_BAND = 0.25  # of a line, from the lower to the upper quartile of its passes
MANY = 48  # steps of a line that is read off its running median


def running(values: Sequence[float]) -> list[float | None]:
    """Return the median of each step and its neighbours, without the prefill: None for that."""
    half = WIDE // 2
    return [median(values[max(1, i - half) : i + half + 1]) if i else None for i in range(len(values))]


def _smooth(values: Sequence[float]) -> list[float]:
    """Return a long line's running median behind its prefill; a short line as it is."""
    return [values[0], *(s for s in running(values) if s is not None)] if len(values) > MANY else list(values)


def at_the_end(step_s: Sequence[float]) -> float:
    """Return the median seconds of the last tenth of the decode steps, as the live page does."""
    return median(step_s[-_tenth(len(step_s)) :])


def _tenth(tokens: int) -> int:
    """How many steps are the last tenth of the decode steps, of which a run has one less than tokens."""
    return max(1, round((tokens - 1 if tokens > 2 else tokens) / 10))


def at_the_start(step_s: Sequence[float]) -> float:
    """Return the median seconds of the first tenth of the decode steps."""
    return at_the_end([step_s[0], *reversed(step_s[1:])])


CLIMBED = 1.05  # times the first tenth of the steps, above which a line is no longer flat


def flat_to(step_s: Sequence[float]) -> int | None:
    """Return the last new token before the running median exceeds CLIMBED times its first tenth; None if it doesn't."""
    line = [s for s in running(step_s) if s is not None]
    most = CLIMBED * at_the_start(step_s)
    return next((token for token, s in enumerate(line, 1) if s > most), None)  # the prefill writes token 1


def widest(curve: Curve) -> int | None:
    """Return the new token at which a line's band is widest; None if the band is nowhere WIDE_BAND of the line."""
    lines = [[s for s in running(row) if s is not None] for row in (curve.step_s, curve.q1_s, curve.q3_s)]
    shares = [(high - low) / middle for middle, low, high in zip(*lines, strict=True)]
    most = max(shares, default=0.0)
    return shares.index(most) + 2 if most >= WIDE_BAND else None  # the prefill writes token 1


ALIGNMENTS = {"step": "new token", "position": "position in the context"}

# Which of the four charts are drawn, from the top: the time of each token, the time so far, the cache, the speed-up.
VIEWS = {
    "step": ("time per token", (0,)),
    "total": ("time so far", (1,)),
    "cache": ("cache", (2,)),
    "speedup": ("speed-up", (3,)),
    "all": ("all four", (0, 1, 2, 3)),
}


def overlay(
    curves: Sequence[Curve], *, by: str = "step", log: bool = False, baseline: int = 0, view: str = "step"
) -> go.Figure:
    """Draw a view's charts, which share an x axis and zoom together. Speed-ups are relative to curve `baseline`.

    Curves of different modes have their modes' colours.
    """
    unit, size = unit_for(max((max(c.cache_bytes, default=0) for c in curves), default=1))
    titles = ("ms for this token", "seconds so far", f"KV cache, {unit}", "speed-up, times")
    drawn = VIEWS[view][1]
    heights = [0.4 if which == 0 else 0.2 for which in drawn]
    figure = make_subplots(rows=len(drawn), cols=1, shared_xaxes=True, vertical_spacing=0.035, row_heights=heights)
    lines = palette.lines_of([curve.mode for curve in curves])
    for number, (curve, line) in enumerate(zip(curves, lines, strict=True)):
        _draw(figure, curve, number, line, by, size, _ratio(curves[baseline], by), drawn)
    for row, which in enumerate(drawn, 1):
        figure.update_yaxes(title_text=titles[which], rangemode="tozero", row=row, col=1)
    figure.update_yaxes(type="log" if log else "linear", row=1, col=1)
    figure.update_xaxes(title_text=ALIGNMENTS[by], row=len(drawn), col=1)
    figure.update_xaxes(labelalias={"0": ""})  # tokens count from 1
    look: dict[str, Any] = {"font_size": 14, "hovermode": "closest", "legend": LEGEND, "margin": MARGIN}
    figure.update_layout(height=1000 if len(drawn) > 1 else 430, **look)
    return figure if len(drawn) > 1 else name_ends(figure)


def with_ends(curves: Sequence[Curve], view: str, about: str = "") -> list[Curve]:
    """The curves, their names with what each shows at its end; `about` stands before a number that is approximate."""
    ends = {
        "step": lambda curve: f"{_two_digits(1000 * at_the_end(curve.step_s))} median",
        "total": lambda curve: brief(curve.total_s),
        "cache": lambda curve: human(curve.cache_bytes[-1]) if curve.cache_bytes else "",
    }
    if view not in ends or len(curves) > FEW:
        return list(curves)
    said = [ends[view](curve) for curve in curves]
    return [replace(c, name=f"{c.name}\n{about}{end}") if end else c for c, end in zip(curves, said, strict=True)]


def mark_the_end(figure: go.Figure, curves: Sequence[Curve], by: str = "step") -> go.Figure:
    """Shade the last tenth of the tokens, whose medians stand at the ends of the lines, and say so beside it; nothing
    where ends differ.
    """
    ends = {curve.x(by)[-1]: len(curve.step_s) for curve in curves}
    if len(ends) > 1 or len(curves) > FEW:
        return figure
    ((last, tokens),) = ends.items()
    first = last - _tenth(tokens) + 1
    figure.add_vrect(x0=first, x1=last, fillcolor="#888888", opacity=0.14, line_width=0)
    beside = {"x": first, "xanchor": "right", "y": 0, "yref": "paper", "yanchor": "bottom", "font_size": 13}
    return figure.add_annotation(text="the last tenth's medians →", showarrow=False, **beside)


SPIKE = 1.25  # times the first tenth of the decode steps, above which the prefill stands out


def mark_the_prefill(figure: go.Figure, curves: Sequence[Curve], by: str = "step") -> go.Figure:
    """Ring the lines' first points, and say beside the highest what they are; nothing where none stands out or a legend
    has the place.
    """
    starts = {curve.x(by)[0] for curve in curves}
    spikes = any(len(c.step_s) > 2 and c.step_s[0] > SPIKE * at_the_start(c.step_s) for c in curves)
    if figure.layout.showlegend is not False or len(starts) > 1 or not spikes:
        return figure
    (start,), firsts = starts, [1000 * curve.step_s[0] for curve in curves]
    colours = [line["color"] for line in palette.lines_of([curve.mode for curve in curves])]
    ring = {"symbol": "circle-open", "size": 9, "color": colours, "line": {"width": 2}}
    figure.add_scatter(
        x=[start] * len(firsts), y=firsts, mode="markers", marker=ring, hoverinfo="skip", showlegend=False
    )
    high, top = max(firsts), 1000 * max(max(curve.step_s) for curve in curves)
    end = max(curve.x(by)[-1] for curve in curves)
    y = math.log10 if figure.layout.yaxis.type == "log" else float
    lifted = y(min(high + 0.4 * top, 1.08 * top))
    words = {"axref": "x", "ax": start + 0.05 * (end - start), "ayref": "y", "ay": lifted}
    look = {"showarrow": True, "arrowhead": 0, "arrowwidth": 1, "standoff": 5, "xanchor": "left", "font_size": 13}
    look["bgcolor"] = palette.PAPER  # a line of the grid would strike it out
    return figure.add_annotation(text="first token: the prefill", x=start, y=y(high), **words, **look)


def mark_flat(figure: go.Figure, token: int) -> go.Figure:
    """Mark the token to which the line without a cache is flat."""
    label = {"text": f"flat to {token:,}", "yref": "paper", "y": 1, "yanchor": "top", "xanchor": "right"}
    return figure.add_vline(x=token, line=DOTTED, annotation={**label, "font_size": 13})


def mark_apart(figure: go.Figure, token: int) -> go.Figure:
    """Say beside the token at which passes differ most that they do."""
    beside = {"x": token, "xanchor": "left", "xshift": 10, "y": 1, "yref": "paper", "yanchor": "top", "align": "left"}
    return figure.add_annotation(text="passes differ,<br>cause not measured", showarrow=False, font_size=13, **beside)


def on_one_scale(groups: Sequence[tuple[Sequence[Curve], str, str]]) -> list[go.Figure]:
    """Draw each group of curves by itself, its first and last tokens marked, and all groups on one scale of time.

    With each group comes what stands before a number that is approximate (see `with_ends`), and what its axis says of
    where it was measured.
    """
    figures: list[go.Figure] = []
    for curves, about, where in groups:
        named = with_ends(curves, "step", about)
        figure = mark_the_prefill(mark_the_end(overlay(named), named), named)
        figures.append(figure.update_layout(height=350).update_yaxes(title_text=f"ms for this token {where}"))
    most = max(y for figure in figures for line in figure.data for y in line.y if y)
    return [figure.update_yaxes(range=[0, 1.03 * most]) for figure in figures]


def _two_digits(ms: float) -> str:
    """Milliseconds with two digits, a last zero too: beside 5.3 ms, 4 ms would look less precise than 4.0 ms."""
    return f"{ms:,.0f} ms" if ms >= 9.95 else f"{ms:#.2g} ms"


def _draw(
    figure: go.Figure,
    curve: Curve,
    number: int,
    line: dict[str, Any],
    by: str,
    size: int,
    ratio: Callable[[Curve], list[float | None]],
    drawn: Sequence[int],
) -> None:
    """Add a run to the charts `drawn`, in one colour and dash; the legend hides all of it together."""
    shown = telling(curve.step_s)
    x = _at(curve.x(by), shown)
    group, top = {"legendgroup": str(number)}, {"row": 1, "col": 1, "showlegend": False}
    low, high = ([1000 * s for s in _at(_smooth(part), shown)] if part else [] for part in (curve.q1_s, curve.q3_s))
    if 0 in drawn:
        band = {"fill": "toself", "fillcolor": line["color"], "opacity": 0.1, "mode": "none", "hoverinfo": "skip"}
        figure.add_scatter(x=x + x[::-1], y=high + low[::-1], **band, **group, **top)
    if curve.predicted_s and drawn[0] < 2:
        look = {"mode": "lines", "line": {**line, "width": 1.5, "dash": "dash"}, "opacity": 0.75}
        unit, foretold = (
            ("s so far", accumulate(curve.predicted_s)) if drawn[0] else ("ms", (1e3 * s for s in curve.predicted_s))
        )
        hover = f"predicted before the timed passes: %{{y:.3f}} {unit}<extra></extra>"
        figure.add_scatter(x=x, y=_at(list(foretold), shown), hovertemplate=hover, **look, **group, **top)
    milliseconds = [curve.step_s[i] * 1000 for i in shown]
    held = _at(curve.cache_bytes, [i for i in shown if i < len(curve.cache_bytes)])
    lines: tuple[tuple[Sequence[float | None], list[str] | None], ...] = (
        (milliseconds, [f"{value:.2f} ms" for value in milliseconds]),
        (_at(curve.so_far, shown), None),
        ([b / size for b in held], [f"{b:,} B" for b in held]),
        (_at(ratio(curve), shown), None),
    )
    mode, name = "lines" if len(x) > 80 else "lines+markers", as_text(curve.name).replace("\n", "<br>")
    for row, (values, words) in enumerate((lines[which] for which in drawn), 1):
        hover = ("%{text}" if words else "%{y:.4g}") + "<br>token %{x}<extra>%{fullData.name}</extra>"
        look = {"name": name, "mode": mode, "line": line, "marker": {"size": 5}, "showlegend": row == 1}
        if drawn[row - 1] == 0 and len(curve.step_s) > MANY:
            bold = _at([None if s is None else 1000 * s for s in running(curve.step_s)], shown)
            named = {"name": f"{name}, running median", "showlegend": False, "hoverinfo": "skip"}
            figure.add_scatter(x=x, y=bold, mode="lines", line=line, row=row, col=1, **named, **group)
            look |= {"line": {**line, "width": 1}, "opacity": 0.3}
        figure.add_scatter(x=x, y=list(values), text=words, hovertemplate=hover, row=row, col=1, **look, **group)


MAX_POINTS = 1600  # of a line; a lecture hall's projector has fewer pixel columns


def telling(values: Sequence[float]) -> list[int]:
    """Choose the points to draw, by index: all of them, or the lowest and highest of each stretch of a long line."""
    if len(values) <= MAX_POINTS:
        return list(range(len(values)))
    stretch = -(-2 * len(values) // MAX_POINTS)
    found = {0, len(values) - 1}
    for start in range(0, len(values), stretch):
        part = range(start, min(start + stretch, len(values)))
        found |= {min(part, key=values.__getitem__), max(part, key=values.__getitem__)}
    return sorted(found)


def _at(values: Sequence[T], shown: Sequence[int]) -> list[T]:
    return [values[i] for i in shown]


def _ratio(baseline: Curve, by: str) -> Callable[[Curve], list[float | None]]:
    """Return a function: at each x, the baseline's seconds over a curve's, or None if the baseline lacks the step."""
    base = dict(zip(baseline.x(by), baseline.step_s, strict=True))

    def ratio(curve: Curve) -> list[float | None]:
        pairs = zip(curve.x(by), curve.step_s, strict=True)
        return [base[x] / seconds if x in base and seconds else None for x, seconds in pairs]

    return ratio
