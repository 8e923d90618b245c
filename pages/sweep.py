"""/sweep: the same comparison over a grid of lengths, batches and models."""

import streamlit as st

from kvviz.server.scheduler import scheduler
from kvviz.ui.frame.page import page
from kvviz.ui.shared.experiment import run_or_stop
from kvviz.ui.shared.form import Address
from kvviz.ui.shared.stop_and_think import of_sweep, think
from kvviz.ui.sweep.form import ask, chosen_preset, expected
from kvviz.ui.sweep.results import earlier, opening, shown

with page("sweep"):
    address = Address("sweep")
    watched = address.named("sweep", address.arrived())
    spec, bar = ask(scheduler())
    with bar:
        watched = run_or_stop(scheduler(), spec, watched, address, "sweep", prefix="s_")
    takes = expected(spec, scheduler()) if spec is not None else ""
    if watched:
        if takes:
            st.caption(takes)
        shown(scheduler(), watched, address)
    else:
        opening(chosen_preset(), spec, takes)
        earlier(address)
    think("sweep", of_sweep(scheduler(), watched))
