"""/memory: what a model's KV cache takes, to the byte, and how that is known."""

import streamlit as st

from kvviz.memory.calculator import answers
from kvviz.server.scheduler import scheduler
from kvviz.ui.frame.aloud import say_aloud
from kvviz.ui.memory.engine_log import log_line
from kvviz.ui.memory.figures import example_table, headline
from kvviz.ui.memory.form import ask, memory_form
from kvviz.ui.memory.gpu import on_a_gpu
from kvviz.ui.memory.known_figures import how_we_know
from kvviz.ui.memory.layers import by_layer
from kvviz.ui.memory.look_inside import look_inside
from kvviz.ui.memory.side_by_side import side_by_side
from kvviz.ui.memory.what_if import what_if
from kvviz.ui.shared.stop_and_think import of_memory, think

st.title("How much memory the KV cache takes", anchor=False)
st.markdown(
    "For every token that a model has read, each layer keeps one **key** and one **value** per KV head. "
    "That adds up: pick a model, and see the sum, where each of its numbers comes from, and what would make it smaller."
)

form = memory_form()
asked = ask(form)
found = answers(asked)
main = found[0]

headline(main, asked)
example_table(st.session_state.get("m_example"))

sections = {
    "Side by side": lambda: side_by_side(found, asked),
    "By layer": lambda: by_layer(main),
    "On a GPU": lambda: on_a_gpu(main, asked, form),
    "What if": lambda: what_if(main, asked),
    "Look inside": lambda: look_inside(main, asked),
    "A log line": lambda: log_line(main, asked),
    "How we know": lambda: how_we_know(scheduler()),
}
for tab, draw in zip(st.tabs(list(sections)), sections.values(), strict=True):
    with tab:
        draw()
think("memory", of_memory(main, asked))
say_aloud(
    state="The state is K and V in every layer: 2 × layers × sequences × tokens × KV heads × head size × bytes of "
    "a number, where all layers attend to everything.",
    axis="In use it grows on two axes, tokens and sequences; layers, KV heads and head size are fixed by the "
    "model, and the bytes of a number by the cache's dtype, not the weights'.",
    trade_off="Fewer KV heads, a window, latent rows or fewer bits make room for longer contexts and more users, "
    "and each may cost some quality or some extra work per step.",
)
