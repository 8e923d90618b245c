"""/cost: what a step costs with the cache and without it, by the usual shorthand and by the full count."""

import streamlit as st

from kvviz.ui.cost.ceilings import ceilings
from kvviz.ui.cost.form import ask
from kvviz.ui.cost.results import draw

st.title("What a token costs", anchor=False)
st.markdown(
    "Without a cache every new token reads the whole text again; with one, only itself. "
    "Put in a prompt of **L** tokens, **T** new ones and a hidden size **d**, and see how the work adds up."
)

draw(ask())
ceilings()
