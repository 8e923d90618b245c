"""The script behind every page: the frame and the navigation."""

import pandas  # noqa: F401, whole before any page draws: plotly trips over one that another page's script is importing
import streamlit as st

from kvviz.server.scheduler import scheduler
from kvviz.server.script_slots import turn
from kvviz.ui.frame import tour
from kvviz.ui.frame.help import explain
from kvviz.ui.frame.navigation import all_pages, draw_navigation, lead_old_links_on
from kvviz.ui.frame.room import follow
from kvviz.ui.shared.plain import failure_said
from kvviz.ui.shared.session import signed_in

st.set_page_config(page_title="kvviz", page_icon="⚡", layout="wide", initial_sidebar_state="collapsed")
pages = all_pages()
page = st.navigation(list(pages.values()), position="hidden")
draw_navigation(page)
follow(pages)  # before the sign-in, so that a join link outlives it
explain()
lead_old_links_on(page, pages)
if trouble := scheduler().trouble:
    st.warning(f"Runs go on but are not being kept: {trouble}. What is missing is written when that is over.")
with failure_said():
    if signed_in():
        with turn():
            tour.draw_bar()
            page.run()
