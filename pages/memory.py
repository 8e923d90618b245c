"""/memory: what a model's KV cache takes, to the byte, and how that is known."""

import streamlit as st

from kvviz.memory.calculator import answers
from kvviz.server.scheduler import scheduler
from kvviz.ui.frame.page import page
from kvviz.ui.memory.figures import example_table, explained, headline
from kvviz.ui.memory.form import ask, memory_form
from kvviz.ui.memory.gpu import on_a_gpu
from kvviz.ui.memory.known_figures import how_we_know, log_line
from kvviz.ui.memory.layers import by_layer, look_inside
from kvviz.ui.memory.side_by_side import side_by_side
from kvviz.ui.memory.what_if import what_if
from kvviz.ui.shared.stop_and_think import of_memory, think
from kvviz.ui.shared.tabs import draw_tabs

with page("memory"):
    form = memory_form()
    asked = ask(form)
    found = answers(asked)
    main = found[0]

    sections = {
        "Side by side": lambda: side_by_side(found, asked, form),
        "By layer": lambda: by_layer(main),
        "On a GPU": lambda: on_a_gpu(main, asked, form),
        "What if": lambda: what_if(main, asked),
        "Look inside": lambda: look_inside(main, asked),
        "How we know": lambda: how_we_know(scheduler()),
    }
    log_line(main, asked, form["lines"])
    headline(main, asked)
    example_table(st.session_state.get("m_example"))
    draw_tabs(sections, "m_tab")
    if st.session_state.get("m_tab") != "How we know":  # its figures are of other models and precisions
        explained(main, asked)
    think("memory", of_memory(main, asked))
