"""Stop and think: a page's questions, answered by the reader first, then with the figures that the page has at hand."""

import json
from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from kvviz.experiments.evidence import AtHand, Weighed
from kvviz.experiments.questions import on_page
from kvviz.experiments.sweep.rows import rows
from kvviz.experiments.sweep.spec import SweepSpec
from kvviz.memory.calculator import Answer, Asked, answer
from kvviz.server.scheduler import Scheduler
from kvviz.store.db.stored import Run
from kvviz.ui.quiz.answers import answered
from kvviz.ui.shared.fold import fold
from kvviz.ui.shared.plain import plain

SMALLER = "int4"


def think(page: str, at_hand: AtHand | None = None) -> None:
    """Draw the page's questions, and the short answers folded up; who has answered one reads the whole answer."""
    st.header("Stop and think", anchor=False)
    st.caption("Open one, answer it and press **Check**: then comes the whole answer, with this page's figures.")
    _questions(page, at_hand or AtHand())

    def short() -> None:
        st.markdown("\n".join(f"- {question.short}" for question in on_page(page)))

    fold("In short: the answers", f"think_short_{page}", short)


@st.fragment
def _questions(page: str, at_hand: AtHand) -> None:
    """Draw a box for each question, and what is in it once it was opened: each costs a page half a dozen elements.

    A box that is closed again keeps what was chosen or drawn in it.
    """
    opened: set[str] = st.session_state.setdefault("think_opened", set())
    for question in on_page(page):
        with st.expander(question.question, key=f"think_{question.id}", on_change="rerun") as box:
            if box.open:
                opened.add(question.id)
            if question.id not in opened:
                continue
            st.markdown(f"**{question.check.ask}**")
            if answered(question):
                st.markdown(question.answer(at_hand))


def of_live(scheduler: Scheduler, watched: str | None) -> AtHand:
    """The comparison that the page shows, once it is over."""
    job = scheduler.shown(watched)
    at_hand = AtHand.of_document(job.document if job is not None else None)
    return replace(at_hand, title=plain(at_hand.title))


def of_runs(runs: Sequence[Run]) -> AtHand:
    """The picked runs that belong to the first one's comparison: only those did the same work at the same time."""
    if not runs:
        return AtHand()
    first = runs[0].comparison
    alike = {run.mode: run.figures for run in runs if run.comparison.id == first.id}
    return AtHand(plain(first.title or first.model), first.prompt_tokens, alike)


def of_sweep(scheduler: Scheduler, watched: str | None) -> AtHand:
    """The rows of the sweep that the page shows, once it is over."""
    work = scheduler.get(watched) if watched else None
    if work is None or work.kind != SweepSpec.kind or work.active:
        return AtHand()
    records = [*work.earlier, *(json.loads(text) for text in list(work.records))]
    found = rows(records, SweepSpec.from_dict(work.description()))
    return AtHand(rows=[{**row, "model": plain(row["model"])} for row in found])


def of_memory(main: Answer, asked: Asked) -> AtHand:
    """The chosen model, calculated with its weights as asked, in bfloat16 if that is SMALLER, and in SMALLER."""
    usual = asked.weights if asked.weights != SMALLER else Asked().weights
    found = {dtype: answer(replace(asked, weights=dtype), main.key).memory for dtype in (usual, SMALLER)}
    known = {dtype: memory for dtype, memory in found.items() if memory is not None and memory.weights_bytes}
    if main.memory is None or len(known) < 2:
        return AtHand()
    weights = {dtype: memory.weights_bytes or 0 for dtype, memory in known.items()}
    caches = {dtype: memory.total_bytes for dtype, memory in known.items()}
    return AtHand(weighed=Weighed(plain(main.title), asked.tokens, asked.batch, asked.dtype, weights, caches))
