"""/caches: the same prompt through cache designs: tokens, quality, memory as it is, and time."""

import streamlit as st

from kvviz.server.scheduler import scheduler
from kvviz.ui.caches.form import ask, expected, progress
from kvviz.ui.caches.results import draw
from kvviz.ui.frame.aloud import say_aloud
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
say_aloud(
    state="The state is the same in every exact design, keys and values of all tokens so far; designs differ in "
    "where it lies, what is reserved beside it and what has to be moved at a step.",
    axis="All of it grows on the token axis: joining copies every token at each step, a buffer has its slots from "
    "the start, blocks come sixteen tokens at a time, a window keeps its length.",
    trade_off="Memory, copying and exactness are paid for with one another: reserving buys still memory with an "
    "empty tail, blocks buy it back with a table to look up, fewer bits or tokens buy bytes with precision.",
)
