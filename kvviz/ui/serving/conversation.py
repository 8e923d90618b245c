"""The serving page's seventh section: a conversation whose cache is kept, edited, and cut off at its front."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvviz.charts import claims
from kvviz.charts.first_tokens import STYLE, first_tokens
from kvviz.experiments.serving.spec import TalkSpec
from kvviz.experiments.serving.words import identity, little_saved
from kvviz.server.scheduler import Scheduler
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.serving.form import expected, progress, where
from kvviz.ui.shared.experiment import Document, measured, run_bar
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.model_choice import title
from kvviz.ui.shared.plain import errors_said

TURNS = {
    "first": "The first turn",
    "second": "The second turn",
    "edited": "The first turn, edited",
    "trimmed": "Cut off at its front",
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
    st.header(claims.of_turns(rows), anchor="conversation")
    second = next(row["pieces"] for row in rows if row["turn"] == "second")
    edited = {number: second for number, row in enumerate(rows) if row["turn"] in ("edited", "trimmed")}
    heads = [(TURNS[row["turn"]], _why(row, found["spec"]["drop"])) for row in rows]
    st.html(STYLE + first_tokens(rows, heads, edited))
    if sentence := little_saved(rows):
        st.info(sentence)
    st.caption(TEXTS["serving"]["cold_and_warm"])
    with st.expander("What the figures say, in sentences"):
        said = (f"**{TURNS[row['turn']]}**: {row['sentence']}" for row in rows)
        st.markdown("\n".join(f"- {sentence}" for sentence in (*said, identity(rows))))
    where(found)


def _why(row: Document, drop: int) -> str:
    """Say in short why so much of a prompt was kept and no more."""
    return {
        "first": "Nothing is there yet.",
        "second": "All that was there is kept, in whole blocks.",
        "edited": "Kept: the whole blocks before the edit. What follows depends on it.",
        "trimmed": f"Without the first {drop} tokens, every other has another prefix.",
    }[row["turn"]]
