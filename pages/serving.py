"""/serving: many sequences in one memory, prefixes that they share, a conversation; and the way from here to vLLM."""

import streamlit as st

from kvviz.server.scheduler import scheduler
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
