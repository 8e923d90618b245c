"""/mistakes: every mistake of a first KV cache, really made, beside the loop that does it right."""

import streamlit as st

from kvviz.server.scheduler import scheduler
from kvviz.ui.mistakes.form import ask
from kvviz.ui.mistakes.results import show
from kvviz.ui.shared.experiment import inspected

st.title("Break it on purpose", anchor=False)
st.markdown(
    "A KV cache is a few lines of code, and most of them can be got wrong without a crash. Pick a mistake: the loop "
    "below really makes it, on real weights, beside the right one. Look for the first thing that a user would notice."
)

spec = ask()
if spec is not None:
    inspected(scheduler(), spec, show)
