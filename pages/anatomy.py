"""/anatomy: one attention layer while it happens, on real weights, step by step."""

import streamlit as st

from kvviz.hub import hub
from kvviz.ui.anatomy import ask, walk
from kvviz.ui.firststeps import first_steps
from kvviz.ui.letters import letters
from kvviz.ui.sharedheads import shared_heads
from kvviz.ui.thinking import think

st.title("Inside one attention layer", anchor=False)
st.markdown(
    "The model writes a few tokens; walk through it with **Next** or the arrow keys. Watch the rows of K and V: "
    "where does each come from? Then switch the cache off, and walk the same steps again."
)

with st.expander("Start here: the same with three letters and no numbers", icon=":material/abc:"):
    letters()

asked = ask()
if asked is not None:
    walk(hub(), asked)

sections = {
    "Who shares a key?": shared_heads,
    "The step before": lambda: first_steps(hub()),
}
st.subheader("The same idea, smaller and wider", anchor=False)
for tab, draw in zip(st.tabs(list(sections)), sections.values(), strict=True):
    with tab:
        draw()
think("anatomy")
