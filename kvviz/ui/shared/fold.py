"""A box that is closed at first, and costs a page nothing until it is opened."""

from collections.abc import Callable

import streamlit as st

from kvviz.ui.shared.plain import failure_said


def fold(title: str, key: str, draw: Callable[[], object], *, expanded: bool = False) -> None:
    """Draw a closed box whose contents are drawn from its first opening on.

    Streamlit draws an expander's contents with the page, so that a chart or a table that nobody sees delays the others.
    Opening the box reruns only the box.
    """
    st.fragment(_fold)(title, key, draw, expanded)


def _fold(title: str, key: str, draw: Callable[[], object], expanded: bool) -> None:
    opened: set[str] = st.session_state.setdefault("folds_opened", set())
    with st.expander(title, expanded=expanded, key=key, on_change="rerun") as box:
        if box.open:
            opened.add(key)
        if key in opened:
            with failure_said():  # the page doesn't see what a fragment raises
                draw()
