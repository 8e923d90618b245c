"""The serving page's third section: what a preemption costs, where it is computed again and where it is copied back."""

import streamlit as st

from kvviz.experiments.batching.spec import BatchingSpec
from kvviz.experiments.batching.words import preemption_claim
from kvviz.server.scheduler import Scheduler
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.serving.batching import RUNNING, draw_run
from kvviz.ui.serving.form import TIGHT
from kvviz.ui.shared.experiment import Document, measured, run_bar
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.model_choice import accepted, title
from kvviz.ui.shared.plain import errors_said

RECORDING = "preemption"
REQUESTS, APART_S, PROMPT, ANSWER, PLACES = 12, 0.01, 64, 96, 6
TITLES = {
    "continuous": "Recompute: a preempted request's blocks are given up, and computed again",
    "swap": "Swap: they are copied to the host's memory, and back",
}


def preemption_spec(model: str, slots: int = 512) -> BatchingSpec:
    """What the section asks for: equal requests, one soon after another, that grow out of so many slots."""
    arrivals = tuple(round(APART_S * number, 3) for number in range(REQUESTS))
    lengths = (PROMPT,) * REQUESTS, (ANSWER,) * REQUESTS
    return BatchingSpec(model, arrivals, *lengths, policies=tuple(TITLES), places=PLACES, slots=slots)


def section(scheduler: Scheduler, form: Form) -> None:
    """Draw the form, the run as it goes on or what is kept of one, and what it shows."""
    st.markdown(TEXTS["serving"]["preemption"])
    bar, shown = run_bar(), st.container()
    with bar:
        slots = st.select_slider("Memory, in slots", TIGHT, width=200, **form.value("tight"))
    documents: list[Document] = []
    with errors_said():
        spec = preemption_spec(form["model"], slots)
        accepted(scheduler, spec.work())
        with shown:
            job = measured(scheduler, spec, documents.append, place=bar, key="vq", press="Serve them", kept=RECORDING)
            claim = preemption_claim(documents[0]["rows"]) if documents else RUNNING
            draw_run(job, documents, claim, anchor=RECORDING, kept=RECORDING, titles=TITLES)
            each = f"{REQUESTS} requests, {APART_S * 1e3:.0f} ms apart, of {PROMPT} tokens and {ANSWER} new ones each"
            model = f"{title(form['model'])}, the model of *Prefix sharing*"
            st.caption(f"{each}, to {model}; at most {PLACES} run at once.")
