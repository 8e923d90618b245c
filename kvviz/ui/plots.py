"""Plotly's figures on a page: in colours that stand out from it, light or dark."""

from typing import Any

import streamlit as st

from kvviz.charts.dark import on_dark


def plot(figure: Any, place: Any = st, **how: Any) -> None:
    """Draw a figure, made for a light page, on this one."""
    place.plotly_chart(on_dark(figure) if st.context.theme.type == "dark" else figure, **how)
