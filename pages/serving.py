"""/serving: many sequences in one memory, prefixes that they share, a conversation; and the way from here to vLLM."""

import streamlit as st

from kvviz.server.scheduler import scheduler
from kvviz.ui.frame.aloud import say_aloud
from kvviz.ui.serving import arrivals, conversation, shared_prompt, to_vllm
from kvviz.ui.serving.form import serving_form
from kvviz.ui.shared.formulas import fit_formulas

st.title("Many requests, one memory", anchor=False)
st.markdown(
    "A server answers many at once, and all their caches lie in one memory. How it is **given out** decides how many "
    "fit; what is **shared** and what is **kept** decides how much the model still has to compute."
)
fit_formulas()

form = serving_form()
arrivals.section(scheduler(), form)
shared_prompt.section(scheduler(), form)
conversation.section(scheduler(), form)
form.write()
to_vllm.section()
say_aloud(
    state="The state is one memory that many sequences share: whose each piece is, how much of it is filled, and "
    "which pieces hold a prefix that other sequences have too.",
    axis="It grows on the batch axis as requests come and on the token axis of each of them as it writes; a kept "
    "prefix saves work on the token axis, up to the first token that differs.",
    trade_off="Blocks trade a table to look things up in for room: less than a block is wasted per sequence, so "
    "more run at once; and who lets more in may have to preempt and compute again.",
)
