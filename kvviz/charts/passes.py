"""Draws how long runs took, pass by pass: a bar to the median of each run, and a dot for each of its passes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from kvviz.base.words import brief, ratio, two_digits
from kvviz.charts.layout import INK, as_text


@dataclass(frozen=True)
class Timed:
    """A run's seconds in each of its passes, of the whole pass or of one token of it, and their median.

    `ratio`: how many times as fast it is as the baseline, None of the baseline itself; `interval`: the 95% interval of
    that ratio, where one was measured. `about` is "≈ " if other work disturbed every pass.
    """

    name: str
    colour: str
    typical: float
    passes: tuple[float, ...] = ()
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    about: str = ""

    @property
    def gain(self) -> str:
        """Say by what factor a run is faster or slower than the baseline; "" for the baseline itself."""
        if not self.ratio:
            return ""
        return (
            f"{self.about}{ratio(self.ratio)}× as fast"
            if self.ratio >= 1
            else f"{self.about}{ratio(1 / self.ratio)}× as long"
        )

    @property
    def spread(self) -> str:
        """How many passes there are, and how far the farthest of them lies from their median."""
        if len(self.passes) < 2:
            return "one pass" if self.passes else "passes not on record"
        farthest = max(abs(each / self.typical - 1) for each in self.passes)
        return f"{len(self.passes)} passes ±{two_digits(100 * farthest)}%"


ROW, BELOW = 60, 0.3  # pixels of a run, two lines and its bar; rows of room below the last


def passes_figure(groups: Mapping[str, Sequence[Timed]], title: str) -> go.Figure:
    """Draw the runs of each group under its heading of up to two lines, all on one scale from 0; `title` says of what.

    The only group may have "" for a heading.
    """
    rows: list[tuple[str, Timed | None]] = []
    for heading, members in groups.items():
        rows += [(heading, None)] if heading else []
        rows += [(", ".join(filter(None, [run.name, *heading.split("\n")])), run) for run in members]
    names = [as_text(name) for name, _ in rows]
    places = [name + "\u200b" * names[:number].count(name) for number, name in enumerate(names)]  # none twice
    timed = [(place, run) for place, (_, run) in zip(places, rows, strict=True) if run]
    most = max(seconds for _, run in timed for seconds in (run.typical, *run.passes))
    factor, unit = (1.0, "s") if most >= 1 else (1e3, "ms")
    figure = go.Figure()
    _bars(figure, timed, factor, unit)
    for place, (name, run) in zip(places, rows, strict=True):
        if run is None:
            bold, _, more = as_text(name).partition("\n")
            _write(figure, f"<b>{bold}</b><br>{more}", place, -15, INK, 14)
            continue
        gain = f": {run.gain}" if run.gain else ""
        _write(figure, f"<b>{as_text(run.name)}{gain}</b>", place, 26, run.colour, 14)
        sure = ", 95% interval {:.3g} to {:.3g}".format(*run.interval) if run.interval else ""
        _write(figure, f"{run.about}{brief(run.typical, 2 if run.about else 3)}, {run.spread}{sure}", place, 9, INK, 13)
    above = 0.85 if rows[0][1] else 0.4  # rows of room: the lines of a run, or a heading's
    reach = [len(rows) - 1 + BELOW, -above]
    figure.update_yaxes(type="category", categoryarray=places, range=reach, showticklabels=False, showgrid=False)
    figure.update_xaxes(title=f"{title}, {unit}", range=[0, 1.04 * most * factor], automargin=True)
    height = round(ROW * (reach[0] + above)) + 60
    margin = {"l": 4, "r": 10, "t": 0, "b": 10}
    return figure.update_layout(height=height, margin=margin, font_size=14, showlegend=False, hovermode="closest")


def _bars(figure: go.Figure, timed: Sequence[tuple[str, Timed]], factor: float, unit: str) -> None:
    """Add a bar to each median, hatched if every pass was disturbed, and a dot for each pass."""
    pattern = {"shape": ["/" if run.about else "" for _, run in timed], "size": 6, "solidity": 0.4}
    colours = [run.colour for _, run in timed]
    marker = {"color": colours, "opacity": 0.45, "line": {"width": 0}, "pattern": pattern}
    words = {"name": "median", "hovertemplate": f"median: %{{x:.4g}} {unit}<extra></extra>"}
    x, y = [run.typical * factor for _, run in timed], [place for place, _ in timed]
    figure.add_bar(x=x, y=y, orientation="h", width=0.24, marker=marker, **words)
    passes = [(each * factor, place, run) for place, run in timed for each in run.passes]
    dots = {"size": 9, "color": [run.colour for *_, run in passes], "line": {"width": 1, "color": "#ffffff"}}
    dots["symbol"] = ["circle-open" if run.about else "circle" for *_, run in passes]
    words = {"name": "one pass", "hovertemplate": f"one pass: %{{x:.4g}} {unit}<extra></extra>"}
    x, y = [value for value, _, _ in passes], [place for _, place, _ in passes]
    figure.add_scatter(x=x, y=y, mode="markers", marker=dots, cliponaxis=False, **words)


def _write(figure: go.Figure, text: str, place: str, up: int, colour: str, size: int) -> None:
    at = {"xref": "paper", "x": 0, "xanchor": "left", "y": place, "yanchor": "bottom", "yshift": up, "align": "left"}
    figure.add_annotation(text=text, font={"size": size, "color": colour}, showarrow=False, **at)
