"""The serving page's fourth section: a conversation whose cache is kept, edited, and cut off at its front."""

import html
from pathlib import Path

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvviz.base.words import millis
from kvviz.caches.block_table import BLOCK
from kvviz.charts import claims
from kvviz.charts.serving import first_token_figure
from kvviz.experiments.serving.spec import TalkSpec
from kvviz.experiments.serving.words import identity, little_saved
from kvviz.server.scheduler import Scheduler
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.serving.form import expected, progress, where
from kvviz.ui.shared.experiment import Document, measured, run_bar
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.model_choice import title
from kvviz.ui.shared.plain import errors_said
from kvviz.ui.shared.plots import plot

TURNS = {  # in words, and in short
    "first": ("The first turn", "first"),
    "second": ("The second turn", "second"),
    "edited": ("The first turn edited", "edited"),
    "trimmed": ("The history cut off at its front", "cut off"),
}


def section(scheduler: Scheduler, form: Form) -> None:
    """Draw the form, the measurement and what it shows."""
    st.markdown(TEXTS["serving"]["conversation"])
    bar = run_bar()
    with errors_said():
        spec = _ask(bar, scheduler, form)
        words = expected(scheduler, spec)
        measured(scheduler, spec, _draw, place=bar, key="vt", words=words, progress=progress)


def _ask(bar: DeltaGenerator, scheduler: Scheduler, form: Form) -> TalkSpec:
    with bar:
        drop = st.slider("Tokens cut off at the front", width=260, **form.within("drop", 1, 64))
        with st.popover("The turns", icon=":material/notes:"):
            first = st.text_area("First turn", height=130, width=480, **form.value("first"))
            edited = st.text_area("The same, edited later", height=130, **form.value("edited"))
            second = st.text_area("Second turn", height=68, **form.value("second"))
            st.caption(f"The model is that of *Prefix sharing*, {title(form['model'])}.")
    return TalkSpec(form["model"], first, second, edited, drop=drop, repeats=min(5, scheduler.limits.repeats))


def _draw(found: Document) -> None:
    rows = found["requests"]
    st.html(Path(__file__).with_suffix(".css"))
    names = [TURNS[row["turn"]][1] for row in rows]
    st.header(claims.of_first_tokens(rows), anchor="conversation")
    plot(first_token_figure(rows, names), key="v_turns")
    st.markdown(TEXTS["serving"]["strips"])
    for row in rows:
        _turn(row)
    st.markdown(f"- {identity(rows)}")
    if sentence := little_saved(rows):
        st.info(sentence)
    st.caption(TEXTS["serving"]["cold_and_warm"])
    where(found)


def _turn(row: Document) -> None:
    kept, alike = row["warm"]["found_tokens"], row["alike_tokens"]
    with st.container(border=True):
        st.markdown(f"**{TURNS[row['turn']][0]}**. {row['sentence']}")
        st.html(strip(row["pieces"], kept))
        st.markdown(
            f"First token: **{millis(row['warm']['ttft_s'])}** with what was kept, {millis(row['cold']['ttft_s'])} "
            f"prefilled anew. Kept: ${BLOCK} \\cdot \\lfloor {alike} / {BLOCK} \\rfloor = {kept}$ tokens."
        )


def strip(pieces: list[str], kept: int) -> str:
    """The tokens of a prompt one after another, those that were kept and those that were computed, as HTML."""
    parts = [
        f'<span class="{"kept" if place < kept else "computed"}">{html.escape(piece) or "·"}</span>'
        for place, piece in enumerate(pieces)
    ]
    return f'<div class="kv-strip">{"".join(parts)}</div>'
