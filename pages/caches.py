"""/caches: the same prompt through cache designs: tokens, quality, memory as it is, and time."""

from functools import partial

import streamlit as st

from kvviz.server.scheduler import scheduler
from kvviz.ui.caches import forgetting, race, recall
from kvviz.ui.caches.form import PARTS, caches_form
from kvviz.ui.frame.page import TEXTS, page
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.tabs import draw_tabs

SECTIONS = {"Tokens evicted": forgetting.section, "Facts recalled": recall.section}  # the others are views of a race


def _part(name: str, form: Form) -> None:
    st.markdown(TEXTS["caches"]["question"][name])
    SECTIONS.get(name, race.section)(scheduler(), form)


with page("caches"):
    form = caches_form(scheduler())
    draw_tabs({name: partial(_part, name, form) for name in PARTS}, form.key("part"), form["part"])
    form.write()
