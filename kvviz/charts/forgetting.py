"""Draws what designs that evict lose at several budgets."""

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import plotly.graph_objects as go

from kvviz.base.words import human, small
from kvviz.charts import palette
from kvviz.charts.caches import DRIFT
from kvviz.charts.layout import blank, log_ticks, named_rows
from kvviz.charts.memory import unit_for
from kvviz.experiments.forgetting.words import kl_of


def kl_at_budget(found: Mapping[str, Any]) -> go.Figure:
    """Draw each design's mean KL within the asked budget on a logarithmic axis, a row for each, the least on top."""
    lost = {run["title"]: (run["mode"], max(kl_of(run, found["budget"]), 1e-9)) for run in found["runs"]}
    figure = blank(DRIFT, "", height=90 + 40 * len(lost), showlegend=False, yaxis_automargin=True)
    for name, (mode, kl) in sorted(lost.items(), key=lambda item: -item[1][1]):
        marker = {"symbol": palette.MARKER[mode], "size": 13, "color": palette.LIGHT[mode]}
        label = {"text": [small(kl)], "textposition": "middle right", "hoverinfo": "skip"}
        figure.add_scatter(x=[kl], y=[name], mode="markers+text", marker=marker, name=name, **label)
    least, most = (pick(kl for _, kl in lost.values()) for pick in (min, max))
    reach = [math.log10(least / 1.5), math.log10(most * 2)]
    figure.update_xaxes(type="log", range=reach, **log_ticks(least / 1.5, most * 2))
    return figure.update_yaxes(rangemode="normal", **named_rows(found["runs"]))


def kl_against_bytes(found: Mapping[str, Any]) -> go.Figure:
    """Draw the mean KL against the bytes held at the end: a line for each design, a point for each budget."""
    unit, size = unit_for(found["whole_bytes"])
    figure = blank(f"held at the end of the text, {unit}", "mean KL, nats", height=380)
    for run in found["runs"]:
        points = sorted(run["budgets"].items(), key=lambda item: item[1]["nbytes"])
        said = [f"{human(one['nbytes'])} ({budget}): KL {fmean(one['kl']):.2g} nats" for budget, one in points]
        figure.add_scatter(
            x=[one["nbytes"] / size for _, one in points],
            y=[max(fmean(one["kl"]), 1e-9) for _, one in points],
            name=run["title"],
            line=palette.line(run["mode"]),
            marker={"symbol": palette.MARKER[run["mode"]], "size": 10},
            mode="lines+markers",
            text=said,
            hovertemplate="%{text}<extra>%{fullData.name}</extra>",
        )
    figure.add_vline(x=found["whole_bytes"] / size, line_dash="dot", annotation_text="all tokens")
    figure.update_yaxes(type="log", dtick=1)
    return figure
