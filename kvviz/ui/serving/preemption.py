"""The serving page's fourth section: what a preemption costs, computed again or copied back."""

from collections.abc import Sequence

import streamlit as st

from kvviz.charts import palette
from kvviz.charts.serving import returns_figure
from kvviz.experiments.batching.spec import BatchingSpec
from kvviz.experiments.batching.words import (
    Row,
    compared_returns,
    fair,
    intact,
    preemption_claim,
    preemption_in_all,
    told_by_returns,
)
from kvviz.server.scheduler import Scheduler
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.serving.batching import RUNNING, all_figures, draw_run
from kvviz.ui.serving.form import TIGHT
from kvviz.ui.shared.experiment import Document, measured, run_bar
from kvviz.ui.shared.fold import fold
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.model_choice import accepted
from kvviz.ui.shared.plain import errors_said
from kvviz.ui.shared.plots import drawn_once, plot

RECORDING = "preemption"
GROUPS, BETWEEN_S, APART_S, PROMPT, ANSWER, PLACES = 6, 0.6, 0.01, 64, 96, 6
TITLES = {
    "continuous": "Recompute: a preempted request's blocks are given up, and computed again",
    "swap": "Swap: they are copied out, and back",
}


def preemption_spec(model: str, slots: int = 512) -> BatchingSpec:
    """What the section asks for: groups of equal requests, one soon after another, that grow out of so many slots.

    A group has a place for each request, so that none is read for the first time while another one returns.
    """
    arrivals = tuple(
        round(BETWEEN_S * group + APART_S * number, 3) for group in range(GROUPS) for number in range(PLACES)
    )
    lengths = (PROMPT,) * len(arrivals), (ANSWER,) * len(arrivals)
    return BatchingSpec(model, arrivals, *lengths, policies=tuple(TITLES), places=PLACES, slots=slots)


def section(scheduler: Scheduler, form: Form) -> None:
    """Draw the form, the run as it goes on or what is kept of one, and what it shows."""
    st.markdown(TEXTS["serving"]["preemption"])
    bar, shown = run_bar("preemption"), st.container()
    with bar:
        slots = st.select_slider("Memory, in token slots", TIGHT, width=200, **form.value("tight"))
    documents: list[Document] = []
    with errors_said():
        spec = preemption_spec(form["model"], slots)
        accepted(scheduler, spec.work())
        with shown:
            job = measured(scheduler, spec, documents.append, place=bar, key="vq", press="Serve them", kept=RECORDING)
            st.header(_claim(documents[0]) if documents else RUNNING, anchor=RECORDING)
            for found in documents:
                _returns(found["rows"], found["environment"]["device"])
            with st.expander("Every request over time, under both rules") if documents else st.container():
                draw_run(job, kept=RECORDING, titles=TITLES)
            each = f"each of {PROMPT} tokens and {ANSWER} new ones, {APART_S * 1e3:.0f} ms apart"
            groups = (
                f"{GROUPS} groups of {PLACES} requests, {BETWEEN_S:g} s apart; {each}; at most {PLACES} run at once"
            )
            all_figures(documents, groups, kept=RECORDING)


def _claim(found: Document) -> str:
    return preemption_claim(found["rows"])


def _returns(rows: Sequence[Row], device: str) -> None:
    """Draw what the return of preempted requests takes under either rule, or say why the two can't be compared."""
    if not fair(rows):
        st.warning(preemption_in_all(rows))
        return
    found = [compared_returns(row) for row in rows]
    if all(found):
        looks = {"computed again": (found[0], palette.AGAIN), "copied back": (found[1], palette.KEPT)}
        plot(drawn_once(returns_figure, looks), key="vq_returns")
        texts = TEXTS["serving"]
        hollow = texts["returns_hollow"] if any(one.beside for steps in found for one in steps) else ""
        here = texts["returns_here"] if device == "cpu" else ""
        st.markdown(f"{told_by_returns(rows)} {hollow}\n\n{here} {intact(rows)}")
        words = "How long all requests take, and whether both rules ran under the same conditions"
        fold(words, "vq_in_all", lambda: st.markdown(preemption_in_all(rows)))
