"""The script behind every page: the frame and the navigation."""

import pandas  # noqa: F401, whole before any page draws: plotly trips over one that another page's script is importing
import streamlit as st

from kvviz.turns import turn
from kvviz.ui import PAGES

st.set_page_config(page_title="kvviz", page_icon="⚡", layout="wide", initial_sidebar_state="collapsed")
live = st.Page(PAGES / "live.py", title="Live", url_path="live")
compare = st.Page(PAGES / "compare.py", title="Compare", url_path="compare")
sweep = st.Page(PAGES / "sweep.py", title="Sweep", url_path="sweep")
memory = st.Page(PAGES / "memory.py", title="Memory", url_path="memory")
front = st.Page(lambda: st.switch_page(live), title="kvviz", default=True, visibility="hidden")
page = st.navigation([front, live, compare, sweep, memory], position="top")
with turn():
    page.run()
