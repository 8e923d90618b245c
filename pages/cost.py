"""/cost: what a step costs with the cache and without it, by the usual shorthand and by the full count."""

import streamlit as st

from kvviz.ui.cost.ceilings import ceilings
from kvviz.ui.cost.form import ask
from kvviz.ui.cost.results import draw
from kvviz.ui.frame.aloud import say_aloud

st.title("What a token costs", anchor=False)
st.markdown(
    "Without a cache every new token reads the whole text again; with one, only itself. "
    "Put in a prompt of **P** tokens, **N** new ones and a hidden size **d**, and see how the work adds up."
)

draw(ask())
ceilings()
say_aloud(
    state="The state decides what a step has to do: with a cache it reads the weights and the cache to make one "
    "token of each sequence; without one it computes every earlier token again.",
    axis="On the token axis a cached step's work and bytes grow in a straight line, and those of an uncached step "
    "by a straight line and a square, of which the square wins only in long contexts.",
    trade_off="The cache trades arithmetic for memory traffic: a decode step is mostly reading, so sequences share "
    "one reading of the weights in a batch, until their caches fill the memory.",
)
