"""/memory: what a model's KV cache takes, to the byte, and how that is known."""

import streamlit as st

from kvviz.memory.calculator import answers
from kvviz.server.scheduler import scheduler
from kvviz.ui.memory import answer as show
from kvviz.ui.memory.form import ask
from kvviz.ui.shared.stop_and_think import of_memory, think

st.title("How much memory the KV cache takes", anchor=False)
st.markdown(
    "For every token that a model has read, each layer keeps one **key** and one **value** per KV head. "
    "That adds up: pick a model, and see the sum, where each of its numbers comes from, and what would make it smaller."
)

asked = ask()
found = answers(asked)
main = found[0]

show.headline(main, asked)
show.example_table(st.session_state.get("m_example"))

sections = {
    "Side by side": lambda: (show.curves(found, asked), show.compared(found)),
    "By layer": lambda: show.layers(main),
    "On a GPU": lambda: show.on_a_gpu(main, asked),
    "What if": lambda: show.what_if(main, asked),
    "Look inside": lambda: show.inside(main, asked),
    "A log line": lambda: show.log_line(main, asked),
    "How we know": lambda: show.how_we_know(scheduler()),
}
for tab, draw in zip(st.tabs(list(sections)), sections.values(), strict=True):
    with tab:
        draw()
think("memory", of_memory(main, asked))
