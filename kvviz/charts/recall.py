"""Draws how many facts each cache design recalls: within one budget, and against the share of the cache it keeps."""

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from kvviz.base.words import human
from kvviz.charts import palette
from kvviz.charts.layout import INK, blank, named_rows, upright
from kvviz.experiments.recall.words import QUARTER, comparable, curves, rows

HEIGHT = 440
CODES, EVICTS, CHANCE = palette.CODES, palette.KEPT, palette.FREE
KEY = (
    ("keeps every token, as codes of fewer bits", CODES),
    ("evicts tokens", EVICTS),
    ("evicts by chance: the baseline", CHANCE),
)


def bars_figure(found: Mapping[str, Any], percent: int) -> go.Figure:
    """Draw what each design recalls within one budget, with 95% intervals, and the full cache as a line."""
    full, held = rows(found)[0], comparable(found, percent)[::-1]
    reach = {
        "array": [100 * (row["high"] - row["accuracy"]) for row in held],
        "arrayminus": [100 * (row["accuracy"] - row["low"]) for row in held],
    }
    told = [f"{row['low']:.0%} to {row['high']:.0%} (95% interval), {human(row['nbytes'])}" for row in held]
    bars = {
        "type": "bar",
        "x": [100 * row["accuracy"] for row in held],
        "y": [row["title"] for row in held],
        "orientation": "h",
        "marker_color": [
            CODES if row["percent"] is None else CHANCE if row["mode"] == "random" else EVICTS for row in held
        ],
        "error_x": {**reach, "thickness": 1.5, "width": 4, "color": INK},
        "customdata": told,
        "hovertemplate": "%{y}: %{customdata}<extra></extra>",
    }
    ceiling = upright(100 * full["accuracy"], {"color": INK, "width": 1.5, "dash": "dash"})
    known = f"{full['recalled']} of {full['asked']} facts and takes {human(full['nbytes'])}"
    over = {"x": 100 * full["accuracy"], "xanchor": "right", "xshift": -2, "align": "right"}
    over |= {"y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False}
    notes: list[dict[str, Any]] = [{"text": f"dashed: the full cache recalls<br>{known}", **over}]
    for end, head, words in ((34, "facts", "{recalled:,}"), (94, "bytes, %", "{share:.0%}")):
        column = {"x": 1, "xref": "paper", "xanchor": "right", "xshift": end, "showarrow": False}
        notes.append({"text": head, "y": 1, "yref": "paper", "yanchor": "bottom", **column})
        notes += [{"text": words.format(**row), "y": row["title"], **column} for row in held]
    room = {"height": 86 + 40 * len(held), "margin_t": 46, "margin_r": 98}  # above: heads; right: figures
    axes = {"xaxis_range": [0, 103], "xaxis_tickvals": [0, 50, 100], "yaxis_automargin": True}
    axes |= {f"yaxis_{name}": value for name, value in named_rows(held).items()}
    look = {"showlegend": False, "bargap": 0.4, "annotations": notes, "shapes": [ceiling]}
    return blank("facts recalled, %", "", [bars], **room, **axes, **look)


def recall_figure(found: Mapping[str, Any]) -> go.Figure:
    """Draw a line for each design with its 95% intervals, and the full cache as the ceiling.

    The legend ranks the designs by what they recall at a quarter.
    """
    figure = blank("kept of the full cache's bytes, %", "facts recalled, %", height=HEIGHT, xaxis_automargin=True)
    full = rows(found)[0]
    ceiling = 100 * full["accuracy"]
    figure.add_hline(y=ceiling, line={"color": palette.LIGHT[full["mode"]], "width": 2, "dash": "dash"})
    words = f"full cache: {full['recalled']} of {full['asked']}"
    figure.add_annotation(
        text=words,
        x=0,
        xref="paper",
        xanchor="left",
        y=ceiling,
        yanchor="bottom",
        showarrow=False,
        font_color=palette.LIGHT[full["mode"]],
    )
    ranked, drawn = [row["mode"] for row in comparable(found)], curves(found)
    for mode, points in sorted(
        drawn.items(), key=lambda item: ranked.index(item[0]) if item[0] in ranked else len(ranked)
    ):
        reach = {
            "array": [100 * (row["high"] - row["accuracy"]) for row in points],
            "arrayminus": [100 * (row["accuracy"] - row["low"]) for row in points],
        }
        told = [
            f"{row['recalled']} of {row['asked']} ({row['low']:.0%} to {row['high']:.0%}), {human(row['nbytes'])}"
            for row in points
        ]
        figure.add_scatter(
            x=[100 * row["share"] for row in points],
            y=[100 * row["accuracy"] for row in points],
            error_y={**reach, "thickness": 1.2, "width": 3},
            customdata=told,
            name=points[0]["title"],
            mode="lines+markers" if len(points) > 1 else "markers",
            line=palette.line(mode),
            marker={"symbol": palette.MARKER.get(mode, "circle"), "size": 9},
            hovertemplate="%{x:.0f}% kept: %{customdata}<extra>" + points[0]["title"] + "</extra>",
        )
    if ranked:
        figure.update_layout(legend_title_text=f"In order of recall at {QUARTER}%")
    return figure.update_xaxes(range=[0, 104]).update_yaxes(range=[0, 108])
