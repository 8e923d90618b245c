"""/anatomy: one attention layer while it happens, on real weights, step by step."""

import streamlit as st

from kvviz.server.scheduler import scheduler
from kvviz.ui.anatomy.first_steps import first_steps
from kvviz.ui.anatomy.form import anatomy_form, ask
from kvviz.ui.anatomy.letters import letters
from kvviz.ui.anatomy.shared_heads import shared_heads
from kvviz.ui.anatomy.walk import walk
from kvviz.ui.frame.aloud import say_aloud
from kvviz.ui.shared.stop_and_think import think

st.title("Inside one attention layer", anchor=False)
st.markdown(
    "The model writes a few tokens; walk through it with **Next** or the arrow keys. Watch the rows of K and V: "
    "where does each come from? Then switch the cache off, and walk the same steps again."
)

with st.expander("Start here: the same with three letters and no numbers", icon=":material/abc:"):
    letters()

form = anatomy_form()
spec = ask(form)
if spec is not None:
    walk(scheduler(), spec, form["head"])

st.subheader("The same idea, smaller and wider", anchor=False)
heads, steps = st.tabs(["Who shares a key?", "The step before"])
with heads:
    shared_heads()
with steps:
    first_steps(scheduler())
think("anatomy")
say_aloud(
    state="In one layer the state is two matrices: K and V, one row per token, written once and read by every "
    "query that comes later.",
    axis="A decode step takes both from T to T + 1 rows on the token axis; Q has T rows in prefill and one row in "
    "decode, and is gone when the step is over.",
    trade_off="By holding two rows per token, a step projects one token and scores one row of keys, where it would "
    "have projected T tokens and scored T × T.",
)
