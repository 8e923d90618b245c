"""Tabs of which only the open one is drawn: all at once they would keep the server and a browser busy for seconds."""

from collections.abc import Callable, Mapping
from typing import Any

import streamlit as st


def draw_tabs(parts: Mapping[str, Callable[[], None]], key: str, default: str | None = None) -> None:
    """Draw a tab for each part, and below the row of tabs what belongs to the open one.

    The row is a segmented control that pages.css draws as tabs. Streamlit's own tabs have a panel each: the browser
    removes a form that two tabs share and builds it again, and after each change it searches the open panel for
    something to focus. That took 20 to 60 ms of a click.
    """
    names = list(parts)
    if st.session_state.get(key) not in parts:
        st.session_state[key] = default if default in parts else names[0]
    named: dict[str, Any] = {"key": key, "label_visibility": "collapsed", "persist_state": "page"}
    with st.container(key=f"tabs_{key}"):
        st.segmented_control("Part of this page", names, default=st.session_state[key], required=True, **named)
    with st.container(key=f"open_{key}"):
        parts[st.session_state[key]]()
