"""/serving: many sequences in one memory, prefixes that they share, a conversation; and the way from here to vLLM."""

import streamlit as st

from kvviz.server.scheduler import scheduler
from kvviz.ui.frame.page import page
from kvviz.ui.serving import (
    arrivals,
    batching,
    conversation,
    conversations,
    load,
    preemption,
    real_server,
    shared_prompt,
    to_vllm,
)
from kvviz.ui.serving.form import PARTS, serving_form
from kvviz.ui.shared.plots import fit_formulas
from kvviz.ui.shared.stop_and_think import think

with page("serving"):
    fit_formulas()

    form = serving_form()
    parts = st.tabs(PARTS, key=form.key("part"), default=form["part"], on_change="rerun")
    with parts[0]:
        batching.section(scheduler(), form)
        think("serving")
    with parts[1]:
        load.section(scheduler(), form)
    with parts[2]:
        arrivals.section(scheduler(), form)
    with parts[3]:
        preemption.section(scheduler(), form)
    with parts[4]:
        shared_prompt.section(scheduler(), form)
    with parts[5]:
        conversations.section(scheduler(), form)
    with parts[6]:
        conversation.section(scheduler(), form)
    with parts[7]:
        to_vllm.section()
    with parts[8]:
        real_server.section(scheduler(), form)
    form.write()
