"""The quiz from question to question, and the summary at its end."""

import streamlit as st

from kvviz.experiments.questions import QUESTIONS, ROUNDS
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.quiz.answers import ask, forget, given, see
from kvviz.ui.shared.form import Field, Form, one_of

SUMMARY = "summary"
PLACES = (*QUESTIONS, SUMMARY)


def course() -> None:
    """Draw one question, or the summary, and the way to the others. The address names both, so a class can follow."""
    form = Form(
        "quiz",
        "q_",
        question=Field(PLACES[0], one_of(*PLACES)),
        round=Field("before", one_of(*ROUNDS)),
    )
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    rounds = form.choices("round", list(ROUNDS))
    part = right.segmented_control("Round", format_func=_round_title, required=True, **rounds)
    places = form.choices("question", list(PLACES))
    at = left.pills("Questions", format_func=lambda name: _label(name, part), required=True, wrap=True, **places)
    form.write()
    if at == SUMMARY:
        _summary(part)
        return
    question = QUESTIONS[at]
    with st.container(border=True):
        st.header(question.question, anchor=False)
        if ask(question, part):
            with st.expander("The whole answer"):
                st.markdown(question.text)
    st.button("Next", key="q_next", on_click=_next, args=(form.key("question"), at))


def _round_title(part: str) -> str:
    return f"{part.capitalize()} the lesson"


def _next(key: str, at: str) -> None:
    st.session_state[key] = PLACES[PLACES.index(at) + 1]


def _label(name: str, part: str) -> str:
    if name == SUMMARY:
        return "Summary"
    answer = given(part).get(name)
    mark = "" if answer is None else " ✓" if QUESTIONS[name].check.is_right(answer) else " ✗"
    return f"{PLACES.index(name) + 1}{mark}"


def _summary(part: str) -> None:
    answers = given(part)
    right = [name for name, answer in answers.items() if QUESTIONS[name].check.is_right(answer)]
    again = [question for name, question in QUESTIONS.items() if name in answers and name not in right]
    st.header(f"{len(right)} of {len(QUESTIONS)} right, {len(QUESTIONS) - len(answers)} not answered", anchor=False)
    if earlier := _before(part):
        st.markdown(earlier)
    if again:
        st.markdown(TEXTS["quiz"]["again"])
    for question in again:
        with st.container(border=True):
            st.markdown(f"**{question.question}** {question.check.because}")
            see(question)
    if answers:
        st.button("Answer this round again", key="q_again", on_click=forget, args=(part,))


def _before(part: str) -> str:
    """What has changed since the round before the lesson; empty in that round, and where nothing can be compared."""
    answers = {name: given(name) for name in ROUNDS}
    both = [name for name in QUESTIONS if all(name in held for held in answers.values())]
    if part == "before" or not both:
        return ""
    counts = [sum(QUESTIONS[name].check.is_right(answers[each][name]) for name in both) for each in ROUNDS]
    return f"Of {len(both)} questions answered both times, {counts[0]} were right before and {counts[1]} after."
