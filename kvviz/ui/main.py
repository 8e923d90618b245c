"""The script behind every page: the frame and the navigation."""

import pandas  # noqa: F401, whole before any page draws: plotly trips over one that another page's script is importing
import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.server.scheduler import scheduler
from kvviz.server.script_slots import turn
from kvviz.ui.folders import PAGES
from kvviz.ui.frame.aloud import say_aloud
from kvviz.ui.frame.room import follow
from kvviz.ui.shared.signin import signed_in

st.set_page_config(page_title="kvviz", page_icon="⚡", layout="wide", initial_sidebar_state="collapsed")
live = st.Page(PAGES / "live.py", title="Live", url_path="live")
anatomy = st.Page(PAGES / "anatomy.py", title="Anatomy", url_path="anatomy")
mistakes = st.Page(PAGES / "mistakes.py", title="Break it", url_path="mistakes")
memory = st.Page(PAGES / "memory.py", title="Memory", url_path="memory")
cost = st.Page(PAGES / "cost.py", title="Cost", url_path="cost")
roofline = st.Page(PAGES / "roofline.py", title="Roofline", url_path="roofline")
caches = st.Page(PAGES / "caches.py", title="Caches", url_path="caches")
compare = st.Page(PAGES / "compare.py", title="Compare", url_path="compare")
sweep = st.Page(PAGES / "sweep.py", title="Sweep", url_path="sweep")
serving = st.Page(PAGES / "serving.py", title="Serving", url_path="serving")
front = st.Page(lambda: st.switch_page(live), title="kvviz", default=True, visibility="hidden")
pages = [live, anatomy, mistakes, memory, cost, roofline, caches, serving, compare, sweep]
page = st.navigation([front, *pages], position="top")
follow(pages)  # before the sign-in, so that a join link outlives it
if scheduler().trouble:
    st.warning(
        f"Runs go on but are not being kept: {scheduler().trouble}. What is missing is written when that is over."
    )
try:
    if signed_in():
        with turn():
            page.run()
        say_aloud(page.url_path)
except KvvizError as error:  # a store that fails, say: a sentence, never a traceback
    st.error(str(error))
