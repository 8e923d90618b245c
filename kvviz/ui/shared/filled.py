"""What the page fills a widget with, as the widget's own default.

A value that is only put into the session's state is told to the browser once. Where the browser asks for the next run
before it has mounted the widget, that is lost, and the widget comes up empty; its default is told with every run.
"""

from collections.abc import Sequence
from typing import Any

import streamlit as st


def value(key: str, usual: Any = None) -> Any:
    """What the widget of this key holds; `usual` before it holds anything."""
    return st.session_state.get(key, usual)


def index(key: str, options: Sequence[Any], usual: Any = None) -> int:
    """The place among the options of what the widget of this key holds; the first where that is none of them."""
    held = value(key, usual)
    return options.index(held) if held in options else 0
