"""/anatomy: one layer while it happens, step by step: attention on real weights, others on tiny true architectures."""

import streamlit as st

from kvviz.server.scheduler import scheduler
from kvviz.ui.anatomy import architectures
from kvviz.ui.anatomy.first_steps import first_steps
from kvviz.ui.anatomy.form import choose
from kvviz.ui.anatomy.no_mask import no_mask
from kvviz.ui.anatomy.shared_heads import shared_heads
from kvviz.ui.anatomy.walk import letters, walk
from kvviz.ui.frame.page import TEXTS, page
from kvviz.ui.frame.tour import opens
from kvviz.ui.shared.model_choice import title
from kvviz.ui.shared.stop_and_think import think
from kvviz.ui.shared.tabs import draw_tabs

with page("anatomy"):
    form, bar = choose()
    if form["scene"] == "attention":
        # whoever the tour leads to the letters sees them first
        places, led = (st.container(), st.container()), opens("letters")
        with places[not led], st.expander("The same with four letters, no numbers", expanded=led):
            letters()
        with places[led]:
            walk(scheduler(), form, bar)
            for column, words in zip(st.columns(3, gap="medium"), TEXTS["anatomy"]["why"].values(), strict=True):
                column.markdown(words)

        st.header("A closer look", anchor=False)
        closer = {
            "Fewer KV heads make a smaller cache": lambda: shared_heads(title(form["model"])),
            "Attention in plain code": lambda: first_steps(scheduler()),
        }
        draw_tabs(closer, "a_closer")
        think("anatomy")
    elif form["scene"] == "masks":
        form.write()
        no_mask(bar)
    else:
        architectures.walk(scheduler(), form, bar)
