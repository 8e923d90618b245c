"""/sweep: the same comparison over a grid of lengths, batches and models."""

import streamlit as st

from kvviz.server.scheduler import scheduler
from kvviz.ui.frame.aloud import say_aloud
from kvviz.ui.shared.experiment import run_or_stop
from kvviz.ui.shared.form import Address
from kvviz.ui.shared.stop_and_think import of_sweep, think
from kvviz.ui.sweep.form import ask, expected
from kvviz.ui.sweep.results import shown

st.title("Sweep: one thing varies, everything else stays", anchor=False)
st.markdown(
    "A single run says how fast; a sweep says **what it depends on**. Every cell of the grid is proved and timed like "
    "a comparison, the cells take turns, and results fill in as they come. Look for the column that climbs and the "
    "one that stays flat."
)

address = Address("sweep")
watched = address.named("sweep", address.arrived())
spec = ask(scheduler())
if spec is not None:
    expected(spec, scheduler())
run_or_stop(scheduler(), spec, watched, address, "sweep", prefix="s_")
shown(scheduler(), watched, address)
think("sweep", of_sweep(scheduler(), watched))
say_aloud(
    state="The state is the same cache in every cell of the grid; what varies is how large it becomes.",
    axis="Prompt and new tokens lengthen its token axis, sequences widen its batch axis, and its bytes grow in "
    "proportion to each.",
    trade_off="The longer the sequence, the more repeated work the cache saves and the more memory it takes; on a "
    "small model and a short sequence it saves little, because a step is mostly overhead.",
)
