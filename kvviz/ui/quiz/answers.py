"""What this visitor has answered, before the lesson and after it, and the form in which a question is answered."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.charts import palette
from kvviz.decoding.modes import MODES
from kvviz.experiments.questions import QUESTIONS, ROUNDS, Check, Question
from kvviz.ui.folders import ASSETS_URL, PAGES
from kvviz.ui.shared.component import component

Button = Mapping[str, Any]  # what Streamlit is told of one
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


def held_back(part: str) -> bool:
    """Say whether what is right waits for the lesson: before it, in a class, until this visitor asks to see it.

    A class that had read the answers would show in its second round what it remembers.
    """
    return part == "before" and bool(st.session_state.get("in_room")) and not st.session_state.get("answers_shown")


def say_held_back() -> None:
    """Draw that the answers come after the lesson, and the button that shows them now."""
    st.info("The class discusses the answers after the lesson.", icon=":material/schedule:")
    st.button("Show the answers", key="q_show", on_click=_remember, args=("answers_shown", True))


def _remember(name: str, value: object) -> None:
    st.session_state[name] = value


def _hear_of_room(key: str) -> None:
    """Take over what the browser says: whether its tab is in a room."""
    _remember("in_room", st.session_state[key].room)


def _key(part: str, name: str) -> str:
    return f"answer_{part}_{name}"


def answered(question: Question, part: str = "before", skip: Button | None = None, *, quiz: bool = False) -> bool:
    """Draw the form of answer with its Check button, or what was checked and why; returns whether it was.

    `skip`: a button beside Check. In the `quiz` a class gets no answers before the lesson.
    """
    check, answer, key = question.check, given(part).get(question.id), _key(part, question.id)
    if answer is None:
        _take(question, part, _asked(check, key, skip))
    elif quiz and held_back(part):
        st.markdown(f"You said: **{check.shown(answer)}**. Your answer is kept.")
        say_held_back()
    else:
        if check.choices:
            _marked(check, answer, key)
        elif check.strokes:
            _sketched(check, answer, key)
        _judge(check, answer)
        see(question)
    told: dict[str, Any] = {"assets": ASSETS_URL, "question": question.id, "round": part, "answer": answer}
    place = f"class_{question.id}"
    told["room"] = bool(st.session_state.get("in_room")) if quiz else None  # None: nobody asks whether there is one
    _class(key=place, data=told, on_room_change=partial(_hear_of_room, place))
    return answer is not None


def _take(question: Question, part: str, said: str | None) -> None:
    """Keep what was checked and draw the page again, or say what is missing; None stands for nothing checked."""
    if said is None:
        return
    if not said:
        st.warning("Answer first, then press Check.")
        return
    try:
        given(part)[question.id] = question.check.read(said)
    except KvvizError:
        st.warning("Type a number, such as 12, and press Check.")
    else:
        st.rerun()


def _asked(check: Check, key: str, skip: Button | None) -> str | None:
    """Draw the answer's input and the buttons. Return the answer once Check is pressed; it may be empty."""
    look: dict[str, Any] = {"label": "Check", "type": "primary", "width": 160, "key": f"check_{key}"}
    if check.strokes:
        said = _sketched(check, None, key)
        missing = "" if said else "First draw each line, or pick its shape."
        return said if _pressed(st.button, look | {"disabled": not said}, skip, missing) else None
    with st.form(f"form_{key}", border=False):
        if check.choices:
            places = [str(place) for place in range(len(check.choices))]
            shown: dict[str, Any] = {"index": None, "format_func": check.shown, "label_visibility": "collapsed"}
            said = st.radio("Your answer", places, key=key, width="stretch", **shown)
        else:
            said = st.text_input(_field(check.unit), key=key, max_chars=20, width=220)
        return (said or "") if _pressed(st.form_submit_button, look, skip) else None


def _pressed(draw: Callable[..., bool], check: Button, skip: Button | None, missing: str = "") -> bool:
    """Draw Check and what may stand beside it, with what is `missing` for it; return whether Check is pressed."""
    with st.container(horizontal=True, vertical_alignment="center"):
        pressed = draw(**check)
        if skip:
            draw(**skip)
        if missing:
            st.caption(missing, width="content")
    return pressed


def _field(unit: str) -> str:
    """The label of the field for a number."""
    return {"times": "How many times", "GiB": "Size in GiB"}.get(unit, f"Number of {unit}")


def _sketched(check: Check, answer: str | None, key: str) -> str | None:
    """Draw the surface for a line of each mode; returns their shapes once all are drawn."""
    modes = [[mode, MODES[mode].title] for mode in check.strokes]
    data = {"modes": modes, "colours": {"light": palette.LIGHT, "dark": palette.DARK}, "answer": answer}
    drawn: str | None = _sketch(key=key, data={"assets": ASSETS_URL, **data}, on_drawn_change=lambda: None).drawn
    return drawn


def _marked(check: Check, answer: str, key: str) -> None:
    """Draw what there was to choose from where it stood: the right answer, and the one that was taken."""
    with st.container(key=f"marked_{key}", gap=None):
        for place in range(len(check.choices)):
            each = str(place)
            mark = "right" if check.is_right(each) else "wrong" if each == answer else "other"
            words = f"**{check.shown(each)}**" if mark == "right" else check.shown(each)
            yours = " *(your answer)*" if each == answer else ""
            with st.container(key=f"{mark}_{key}_{place}"):
                st.markdown(f"{MARKS[mark]} {words}{yours}")


def _judge(check: Check, answer: str) -> None:
    answered, right = f"You said: {check.shown(answer)}.", check.shown(check.answer)
    if check.is_right(answer):
        words = "**Right.**" if check.choices else f"**Right.** {answered}"  # a choice is marked where it stands
        st.success(f"{words} {check.because}", icon=":material/check_circle:")
    else:
        wrong = f"**The answer is: {right}.**" if check.choices else f"**Not quite.** {answered} It is: {right}."
        st.warning(f"{wrong} {check.because}", icon=":material/cancel:")


def see(question: Question) -> None:
    """Draw the link to the page that shows it."""
    look: dict[str, Any] = {"label": question.see.words, "icon": ":material/arrow_forward:"}
    st.page_link(PAGES / f"{question.see.page}.py", query_params=dict(question.see.query), **look)
