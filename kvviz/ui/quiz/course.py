"""The quiz from question to question, with all of them in a list, and the summary at its end."""

from typing import Any

import streamlit as st

from kvviz.experiments.questions import QUESTIONS, ROUNDS, Question
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.quiz.answers import answered, forget, given, held_back, say_held_back, see
from kvviz.ui.quiz.proof import prove
from kvviz.ui.shared.form import Field, Form, one_of
from kvviz.ui.shared.plots import in_pairs

SUMMARY = "summary"
PLACES = (*QUESTIONS, SUMMARY)


def course() -> None:
    """Draw one question, or the summary, beside the list of all. The address names both, so a class can follow."""
    form = Form(
        "quiz",
        "q_",
        question=Field(PLACES[0], one_of(*PLACES)),
        round=Field("before", one_of(*ROUNDS)),
    )
    rounds = form.choices("round", list(ROUNDS))
    part = st.segmented_control(
        "Round", format_func=_round_title, required=True, label_visibility="collapsed", **rounds
    )
    card, places = st.columns([7, 2], gap="medium")
    at = form["question"]
    with card:  # first, so that the list of questions already marks what is checked now
        if at == SUMMARY:
            _summary(part)
        else:
            _question(QUESTIONS[at], part, form.key("question"))
    answers = given(part)
    with places:
        right = "" if held_back(part) else f", {len(_right(part))} right"
        label = f"{len(answers)} of {len(QUESTIONS)} answered{right if answers else ''}"
        done = f"{len(answers) / len(QUESTIONS):.0%}"
        st.html(f'{label}<div class="kv-progress"><div style="width:{done}"></div></div>')
        look: dict[str, Any] = {"format_func": lambda name: _label(name, part), "required": True, "width": "stretch"}
        st.pills(label, label_visibility="collapsed", **look, **form.choices("question", list(PLACES)))
    form.write()


def _question(question: Question, part: str, key: str) -> None:
    with st.container(border=True, key="quiz_card"):
        st.header(f"Question {PLACES.index(question.id) + 1} of {len(QUESTIONS)} · {question.topic}", anchor=False)
        st.container(key="quiz_ask").markdown(question.check.ask)  # no heading, so that its terms are explained
        known = question.id in given(part)
        shown = known and not held_back(part)
        left, right = st.columns([2, 3], gap="large") if shown else (st.container(), None)
        with left:
            go_on: dict[str, Any] = {"on_click": _next, "args": (key, question.id), "key": "q_next"}
            answered(question, part, skip={"label": "Skip this question", **go_on}, quiz=True)
            if known:
                last = PLACES.index(question.id) == len(QUESTIONS) - 1
                st.button("See the summary" if last else "Next question", type="primary", **go_on)
        if right is None:
            return
        with right:
            prove(question)
        with st.expander("The whole answer"):
            st.markdown(f"**{question.question}**\n\n{question.text}")


def _round_title(part: str) -> str:
    return f"{part.capitalize()} the lesson"


def _next(key: str, at: str) -> None:
    st.session_state[key] = PLACES[PLACES.index(at) + 1]


def _label(name: str, part: str) -> str:
    if name == SUMMARY:
        return "Summary"
    answer = given(part).get(name)
    marks = {None: "", True: " :material/check:", False: " :material/close:"}
    mark = marks[None if answer is None else QUESTIONS[name].check.is_right(answer)]
    if mark and held_back(part):
        mark = " :material/schedule:"
    return f"{PLACES.index(name) + 1} · {QUESTIONS[name].topic}{mark}"


def _right(part: str) -> list[str]:
    return [name for name, answer in given(part).items() if QUESTIONS[name].check.is_right(answer)]


def _summary(part: str) -> None:
    answers = given(part)
    if held_back(part):
        st.header(f"{len(answers)} of {len(QUESTIONS)} answered", anchor=False)
        say_held_back()
        return
    right = _right(part)
    again = [question for name, question in QUESTIONS.items() if name in answers and name not in right]
    left = [f"**{PLACES.index(name) + 1}** {QUESTIONS[name].topic}" for name in QUESTIONS if name not in answers]
    st.header(f"{len(right)} of {len(QUESTIONS)} right, {len(left)} not answered", anchor=False)
    if not answers:
        st.markdown(TEXTS["quiz"]["none"])
    if earlier := _before(part):
        st.markdown(earlier)
    if answers and left:
        st.markdown(f"Not answered yet: {', '.join(left)}.")
    if again:
        st.markdown(TEXTS["quiz"]["again"])
        for column, question in in_pairs(again):
            with column.container(border=True, height="stretch"):
                st.markdown(f"**{PLACES.index(question.id) + 1} · {question.topic}.** {question.check.ask}")
                check = question.check
                said, right_one = check.shown(answers[question.id]), check.shown(check.answer)
                st.markdown(f"You said: {said}. It is: {right_one}. {check.because}")
                see(question)
    elif answers and not left:
        st.markdown(TEXTS["quiz"]["all_right"])
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
