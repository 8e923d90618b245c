"""/serving: many sequences in one memory, beginnings that they share, a conversation; and the way from here to vLLM."""

import streamlit as st

from kvviz.server.scheduler import scheduler
from kvviz.ui.serving import arrivals as crowd
from kvviz.ui.serving import conversation as talk
from kvviz.ui.serving import shared_prompt as prefixes
from kvviz.ui.serving import to_vllm as tovllm
from kvviz.ui.serving.shared import begin, end

begin()
st.title("Many requests, one memory", anchor=False)
st.markdown(
    "A server answers many at once, and all their caches lie in one memory. How it is **given out** decides how many "
    "fit; what is **shared** and what is **kept** decides how much the model still has to compute."
)

crowd.section(scheduler())
prefixes.section(scheduler())
talk.section(scheduler())
tovllm.section()
end()
