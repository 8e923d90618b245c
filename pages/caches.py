"""/caches: the same prompt through cache designs: tokens, quality, memory as it is, and time."""

import streamlit as st

from kvviz.server.scheduler import scheduler
from kvviz.ui.caches import forgetting, race, recall
from kvviz.ui.caches.form import PARTS, caches_form
from kvviz.ui.frame.page import TEXTS, page

SECTIONS = {"What it forgets": forgetting.section, "What it recalls": recall.section}  # the others are views of a race

with page("caches"):
    form = caches_form(scheduler())
    part = form["part"]
    tabs = st.tabs(PARTS, key=form.key("part"), default=part, on_change="rerun")
    with tabs[PARTS.index(part)]:  # alone, because the views of the race share its form
        st.markdown(TEXTS["caches"]["question"][part])
        SECTIONS.get(part, race.section)(scheduler(), form)
    form.write()
