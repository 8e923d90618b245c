"""Who is asking: one secret name per browser, the same in all its tabs and after a reload."""

import streamlit as st

from kvviz.frontdoor import COOKIE, is_browser_name
from kvviz.records import new_id


def owner() -> str:
    """The browser's name, from the cookie that the front door gives; one per session where there is no cookie."""
    name = st.context.cookies.get(COOKIE, "")
    if isinstance(name, str) and is_browser_name(name):
        return name
    return st.session_state.setdefault("owner", new_id())
