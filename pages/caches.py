"""/caches: the same prompt through cache designs: tokens, quality, memory as it is, and time."""

import streamlit as st

from kvviz.server.scheduler import scheduler
from kvviz.ui.caches.form import ask, expected, progress
from kvviz.ui.caches.results import draw
from kvviz.ui.shared.experiment import measured

st.title("Ways to keep a cache", anchor=False)
st.markdown(
    "A cache has to be kept somewhere: joined anew at each step, in a buffer reserved at once, in blocks, in fewer "
    "tokens or in fewer bits. The same prompt goes through each design. Look at what each **writes**, what it "
    "**wastes** and what it **loses**."
)

spec = ask(scheduler())
if spec is not None:
    found = measured(scheduler(), spec, key="k", words=expected(scheduler(), spec), progress=progress)
    if found is not None:
        draw(found)
