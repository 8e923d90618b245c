"""The script behind every page: the frame and the navigation."""

import pandas  # noqa: F401, whole before any page draws: plotly trips over one that another page's script is importing
import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.server.scheduler import scheduler
from kvviz.server.script_slots import turn
from kvviz.ui.folders import PAGES
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.frame.room import follow
from kvviz.ui.shared.session import signed_in

st.set_page_config(page_title="kvviz", page_icon="⚡", layout="wide", initial_sidebar_state="collapsed")
pages = [st.Page(PAGES / f"{name}.py", title=row["navigation"], url_path=name) for name, row in TEXTS.items()]
front = st.Page(lambda: st.switch_page(pages[0]), title="kvviz", default=True, visibility="hidden")
page = st.navigation([front, *pages], position="top")
follow(pages)  # before the sign-in, so that a join link outlives it
if trouble := scheduler().trouble:
    st.warning(f"Runs go on but are not being kept: {trouble}. What is missing is written when that is over.")
try:
    if signed_in():
        with turn():
            page.run()
except KvvizError as error:  # a store that fails, say: a sentence, never a traceback
    st.error(str(error))
