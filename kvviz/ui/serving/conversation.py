"""The serving page's seventh section: a conversation whose cache is kept, edited, and cut off at its front."""

from collections.abc import Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvviz.charts import claims
from kvviz.charts.first_tokens import STYLE, first_tokens, strip
from kvviz.experiments.serving.spec import TalkSpec
from kvviz.experiments.serving.words import identity, little_saved
from kvviz.server.scheduler import Scheduler
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.serving.form import expected, progress, where
from kvviz.ui.shared.experiment import Document, measured, run_bar
from kvviz.ui.shared.fold import fold
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.model_choice import title
from kvviz.ui.shared.plain import errors_said

TURNS = {
    "first": "The first turn",
    "second": "The second turn",
    "edited": "The second turn, after an edit",
    "trimmed": "The history, cut off at its front",
}


def section(scheduler: Scheduler, form: Form) -> None:
    """Draw the form, the measurement and what it shows."""
    st.markdown(TEXTS["serving"]["conversation"])
    bar = run_bar("conversation")
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
    st.html(STYLE + first_tokens(rows, [(TURNS[row["turn"]], _why(row, found["spec"]["drop"])) for row in rows]))
    st.markdown(f"{TEXTS['serving']['conversation_look']} {TEXTS['serving']['spread_of_rounds']}")
    if sentence := little_saved(rows):
        st.info(sentence)
    words = "The four prompts word by word: what was edited, what was cut off, and where the cache hit ends"
    fold(words, "v_words", lambda: _words(rows))

    def figures() -> None:
        said = (f"**{TURNS[row['turn']]}**: {row['sentence']}" for row in rows)
        st.markdown("\n".join(f"- {sentence}" for sentence in (*said, identity(rows))))
        st.markdown(TEXTS["serving"]["cold_and_warm"])

    fold("What the figures say, and how far to trust them", "v_talk_figures", figures)
    where(found)


def _words(rows: Sequence[Document]) -> None:
    """Draw the text of each prompt; of the edited and the trimmed one, what it was made from as well."""
    second = next(row["pieces"] for row in rows if row["turn"] == "second")
    for row in rows:
        before = second if row["turn"] in ("edited", "trimmed") else None
        st.markdown(f"**{TURNS[row['turn']]}**")
        st.html(strip(row["pieces"], row["warm"]["found_tokens"], before))
    st.caption(TEXTS["serving"]["conversation_words"])


def _why(row: Document, drop: int) -> str:
    """Say in short why so much of a prompt was kept and no more."""
    return {
        "first": "Nothing is there yet.",
        "second": "Only the new question is computed, and what fills no whole block.",
        "edited": "A word of the first turn was changed: what follows it is computed again.",
        "trimmed": f"With the first {drop} tokens gone, each later one has a different past, so no stored block fits.",
    }[row["turn"]]
