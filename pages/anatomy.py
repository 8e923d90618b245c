"""/anatomy: one attention layer while it happens, on real weights, step by step."""

import streamlit as st

from kvviz.server.scheduler import scheduler
from kvviz.ui.anatomy.first_steps import first_steps
from kvviz.ui.anatomy.letters import letters
from kvviz.ui.anatomy.shared_heads import shared_heads
from kvviz.ui.anatomy.walk import ask, walk
from kvviz.ui.shared.stop_and_think import think

st.title("Inside one attention layer", anchor=False)
st.markdown(
    "The model writes a few tokens; walk through it with **Next** or the arrow keys. Watch the rows of K and V: "
    "where does each come from? Then switch the cache off, and walk the same steps again."
)

with st.expander("Start here: the same with three letters and no numbers", icon=":material/abc:"):
    letters()

asked = ask()
if asked is not None:
    walk(scheduler(), asked)

sections = {
    "Who shares a key?": shared_heads,
    "The step before": lambda: first_steps(scheduler()),
}
st.subheader("The same idea, smaller and wider", anchor=False)
for tab, draw in zip(st.tabs(list(sections)), sections.values(), strict=True):
    with tab:
        draw()
think("anatomy")
