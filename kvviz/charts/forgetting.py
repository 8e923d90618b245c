"""Draws what designs that evict lose at several budgets."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

import plotly.graph_objects as go

from kvviz.base.words import human
from kvviz.charts import palette
from kvviz.charts.layout import blank
from kvviz.charts.memory import unit_for


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
