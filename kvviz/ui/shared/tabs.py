"""Tabs of which only the open one is drawn: all at once they would keep the server and a browser busy for seconds."""

from collections.abc import Callable, Mapping

import streamlit as st


def draw_tabs(parts: Mapping[str, Callable[[], None]], key: str, default: str | None = None) -> None:
    """Draw a tab for each part, and in the open one what belongs to it."""
    tabs = st.tabs(list(parts), key=key, default=default, on_change="rerun")
    for tab, draw in zip(tabs, parts.values(), strict=True):
        with tab:
            if tab.open:
                draw()
