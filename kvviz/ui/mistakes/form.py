"""The mistakes page's form: a mistake, a model and a prompt."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvviz.decoding.scratch.pitfalls import PITFALLS
from kvviz.experiments.inside.spec import MistakeSpec
from kvviz.models.text import STORY
from kvviz.ui.shared.form import Field, Form, one_of
from kvviz.ui.shared.model_choice import choose_model, model_field, small_models
from kvviz.ui.shared.plain import errors_said

NEW_TOKENS = 16


def ask() -> tuple[MistakeSpec | None, str, DeltaGenerator]:
    """Draw the form, which ends in the mistake's title; return what to inspect, the mistake, and the bar of its title.

    None, and the reason on the page, if what it says can't be inspected.
    """
    form = Form(
        "mistakes",
        "b_",
        model=model_field(small_models("scratch")),
        prompt=Field(STORY, str),
        mistake=Field(next(iter(PITFALLS)), one_of(*PITFALLS)),
    )
    mistake = _which(form)
    bar = st.container(horizontal=True, vertical_alignment="center")
    bar.header(PITFALLS[mistake].title, anchor=False, width="content")
    with bar, st.popover("Model and prompt", icon=":material/tune:"):
        model = choose_model(st.container(), form, small_models("scratch"))
        prompt = st.text_input("Prompt", max_chars=200, **form.value("prompt"))
    form.write()
    with errors_said():
        clock = mistake if PITFALLS[mistake].shows == "clock" else None
        return MistakeSpec(model, prompt, new_tokens=NEW_TOKENS, clock=clock), mistake, bar
    return None, mistake, bar


def _which(form: Form) -> str:
    """Draw the choice of a mistake twice: as pills in groups, and for a phone, which has no room, as a select box.

    The box says in half a sentence what is done wrong, and leaves open what comes of it.
    """

    def take(key: str) -> None:
        form["mistake"] = st.session_state[key] or form["mistake"]  # a second click on the chosen pill leaves it chosen

    def briefly(name: str) -> str:
        return f"{PITFALLS[name].title}: {PITFALLS[name].brief}"

    chosen = str(form["mistake"])
    groups: dict[str, list[str]] = {}
    for name, pitfall in PITFALLS.items():
        groups.setdefault(pitfall.group, []).append(name)
    with st.container(key="mistake_pills", horizontal=True, gap="medium"):
        for number, (group, names) in enumerate(groups.items()):
            key = f"b_pills_{number}"
            st.session_state[key] = chosen if chosen in names else None
            st.pills(
                group,
                names,
                format_func=lambda name: PITFALLS[name].title,
                key=key,
                on_change=take,
                args=(key,),
                wrap=True,
                width=192 if number else "stretch",  # the first group is the largest
            )
    st.session_state.b_menu = chosen
    with st.container(key="mistake_menu"):
        st.selectbox(
            "The mistake",
            list(PITFALLS),
            format_func=briefly,
            label_visibility="collapsed",
            key="b_menu",
            on_change=take,
            args=("b_menu",),
        )
    return chosen
