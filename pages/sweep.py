"""/sweep: the same comparison over a grid of lengths, batches and models."""

import streamlit as st

from kvviz.server.scheduler import scheduler
from kvviz.ui.shared import links
from kvviz.ui.shared.stop_and_think import of_sweep, think
from kvviz.ui.sweep.sweep import ask, foreseen, shown, start

st.title("Sweep: one thing varies, everything else stays", anchor=False)
st.markdown(
    "A single run says how fast; a sweep says **what it depends on**. Every cell of the grid is proved and timed like "
    "a comparison, the cells take turns, and results fill in as they come. Look for the column that climbs and the "
    "one that stays flat."
)

watched = links.named("sweep", "sweep", links.arrived("sweep"))
spec = ask(scheduler())
if spec is not None:
    foreseen(spec, scheduler())
start(spec, scheduler(), watched)
shown(scheduler(), watched)
think("sweep", of_sweep(scheduler(), watched))
