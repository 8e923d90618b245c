"""The verdict on a comparison: what bounds it, the fitted curves typeset, where the cache starts to pay."""

import json
from collections.abc import Sequence
from typing import Any

import streamlit as st

from kvviz.decoding.modes import MODES
from kvviz.experiments.comparison.verdict import equation, judge
from kvviz.server.scheduler import Scheduler
from kvviz.store.db.stored import Run
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.experiment import Document
from kvviz.ui.shared.plain import plain

FIGURES = ("mode", "step_s", "speedup", "estimate", "predicted_s", "prediction_error", "prediction_bias")


def of_live(scheduler: Scheduler, watched: str | None) -> None:
    """Draw the verdict on the comparison that the page shows, once it is over."""
    job = scheduler.shown(watched)
    if job is not None and job.document:
        _judge_and_show(job.document.get("prompt_tokens"), job.document["runs"])


def of_runs(runs: Sequence[Run]) -> None:
    """Draw the verdict on the picked runs of the first one's comparison: only those did the same work."""
    first = runs[0].comparison
    alike = [run for run in runs if run.comparison.id == first.id]
    _judge_and_show(first.prompt_tokens, [run.figures for run in alike])
    if len(alike) < len(runs):
        st.caption(f"This is of {len(alike)} of the {len(runs)} picked runs: those of the first one's comparison.")


def _judge_and_show(prompt_tokens: int | None, runs: Sequence[Document]) -> None:
    kept = [{name: run.get(name) for name in FIGURES} for run in runs]
    found = _judged(json.dumps([prompt_tokens, kept]))
    st.header("What the curves say")
    st.markdown(found["sentence"])
    if found["prediction"]:
        st.markdown(found["prediction"])
    if found["advice"]:
        st.info(found["advice"], icon=":material/lightbulb:")
    for entry in found["modes"]:
        formula = equation(entry)
        if formula is not None:
            st.latex(formula)
        elif entry["mode"] in MODES:
            st.caption(f"{MODES[entry['mode']].title}: {plain('; '.join(entry['untold']))}.")
        line = equation(entry, "line")
        if line is not None:
            st.caption("These points can't tell the square. What a straight line through them tells:")
            st.latex(line)
    if found["crossover"] is not None:
        words = found["crossover"]["sentence"]
        st.markdown(f"{words[:1].upper()}{words[1:]}.")
    if any(entry["fit"] for entry in found["modes"]):
        st.caption(TEXTS["live"]["fitted"])


@st.cache_data(max_entries=64, show_spinner=False)
def _judged(figures: str) -> dict[str, Any]:
    """Judge each comparison once: a script run of a viewer should not fit its curves again."""
    return judge(*json.loads(figures))
