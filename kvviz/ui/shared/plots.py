"""Plotly's figures on a page: in colours that stand out from it, light or dark."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from kvviz.charts.dark import on_dark

CHART = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d"]}  # Plotly's options of a chart


def plot(figure: Any, place: Any = st, *, config: Mapping[str, Any] = CHART, **how: Any) -> None:
    """Draw a figure, made for a light page, on this one."""
    drawn = on_dark(figure) if st.context.theme.type == "dark" else figure
    place.plotly_chart(drawn, config=dict(config), **how)
