"""Typeset formulas on a narrow screen: a long one scrolls by itself and not with the page."""

import streamlit as st

_STYLE = """<style>.katex-display { overflow-x: auto; overflow-y: hidden; padding-top: 0.4rem; }
@media (max-width: 480px) { .katex-display { font-size: 0.8em; } }</style>"""


def fit_formulas() -> None:
    """Let the formulas of this page fit the screen."""
    st.html(_STYLE)
