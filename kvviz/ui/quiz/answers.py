"""What this visitor has answered, before the lesson and after it, and the form in which a question is answered."""

from typing import Any

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.charts import palette
from kvviz.decoding.modes import MODES
from kvviz.experiments.questions import QUESTIONS, ROUNDS, Check, Question
from kvviz.ui.folders import ASSETS_URL, PAGES
from kvviz.ui.shared.component import component

MARKS = {"right": ":green[:material/check_circle:]", "wrong": ":red[:material/cancel:]", "other": ":material/circle:"}

_sketch = component("kvviz_sketch", "quiz/sketching.js", "kv-sketching kv-live")
_class = component("kvviz_class", "quiz/class.js", "kv-class")


def given(part: str) -> dict[str, str]:
    """The answers of one of the ROUNDS by question, which can be changed; the first to a question counts."""
    answers: dict[str, dict[str, str]] = st.session_state.setdefault("answers", {name: {} for name in ROUNDS})
    return answers[part]


def forget(part: str) -> None:
    """Begin this round anew."""
    given(part).clear()
    for name in QUESTIONS:
        st.session_state.pop(_key(part, name), None)


def _key(part: str, name: str) -> str:
    return f"answer_{part}_{name}"


def answered(question: Question, part: str = "before") -> bool:
    """Draw the form of answer and, once there is one, whether it is right and why; returns whether there is one."""
    check, answer = question.check, given(part).get(question.id)
    said = _form(check, answer, _key(part, question.id))
    if answer is not None:
        if not check.choices:  # those say it where they stand
            _judge(check, answer)
        see(question)
    elif said is not None:
        try:
            given(part)[question.id] = check.read(said)
        except KvvizError:
            st.warning("A number is asked for, such as 12.")
        else:
            st.rerun()
    told = {"assets": ASSETS_URL, "question": question.id, "round": part, "answer": answer}
    _class(key=f"class_{question.id}", data=told)
    return answer is not None


def _form(check: Check, answer: str | None, key: str) -> str | None:
    """Draw what is answered with, or, once there is an answer, what there was to choose from; returns what it says."""
    if check.strokes:
        modes = [[mode, MODES[mode].title] for mode in check.strokes]
        data = {"modes": modes, "colours": {"light": palette.LIGHT, "dark": palette.DARK}, "answer": answer}
        return _sketch(key=key, data={"assets": ASSETS_URL, **data}, on_drawn_change=lambda: None).drawn
    if answer is not None:
        if check.choices:
            _marked(check, answer, key)
        return None
    if check.choices:
        places = [str(place) for place in range(len(check.choices))]
        look: dict[str, Any] = {"index": None, "format_func": check.shown, "label_visibility": "collapsed"}
        return st.radio("Your answer", places, key=key, width="stretch", **look)
    return st.text_input(f"Your answer, in {check.unit}", key=key, max_chars=20, width=220) or None


def _marked(check: Check, answer: str, key: str) -> None:
    """Draw what there was to choose from where it stood: the right answer and why it is, and the one that was taken."""
    with st.container(key=f"marked_{key}", gap=None):
        for place in range(len(check.choices)):
            each = str(place)
            mark = "right" if check.is_right(each) else "wrong" if each == answer else "other"
            words = f"**{check.shown(each)}**" if mark == "right" else check.shown(each)
            yours = " *(your answer)*" if each == answer else ""
            why = f"\n\n{check.because}" if mark == "right" else ""
            with st.container(key=f"{mark}_{key}_{place}"):
                st.markdown(f"{MARKS[mark]} {words}{yours}{why}")


def _judge(check: Check, answer: str) -> None:
    said = f"You said: {check.shown(answer)}."
    if check.is_right(answer):
        st.success(f"{said} Right. {check.because}", icon=":material/check_circle:")
    else:
        words = f"{said} It is: {check.shown(check.answer)}. {check.because}"
        st.warning(words, icon=":material/cancel:")


def see(question: Question) -> None:
    """Draw the link to the page that shows it."""
    look: dict[str, Any] = {"label": question.see.words, "icon": ":material/arrow_forward:"}
    st.page_link(PAGES / f"{question.see.page}.py", query_params=dict(question.see.query), **look)
