"""/caches: the same prompt through cache designs: tokens, quality, memory as it is, and time."""

import streamlit as st

from kvviz.server.scheduler import scheduler
from kvviz.ui.caches import forgetting, race, recall
from kvviz.ui.caches.form import PARTS, caches_form
from kvviz.ui.frame.page import TEXTS, page

AHEAD = '<div style="min-height: 36rem"></div>'  # room for what a tab shows as soon as it is opened
SECTIONS = {"What it forgets": forgetting.section, "What it recalls": recall.section}  # the others are views of a race

with page("caches"):
    form = caches_form(scheduler())
    part = form["part"]
    tabs = st.tabs(PARTS, key=form.key("part"), default=part, on_change="rerun")
    for name, tab in zip(PARTS, tabs, strict=True):
        with tab:
            st.markdown(TEXTS["caches"]["question"][name])
            if name == part:  # alone, because the views of the race share its form
                SECTIONS.get(name, race.section)(scheduler(), form)
            else:
                st.html(AHEAD)
    form.write()
