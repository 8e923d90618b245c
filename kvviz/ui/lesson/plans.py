"""What the teacher's page shows: a timed plan, questions with answers, what goes wrong, exercises, a handout."""

import html
import re
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import streamlit as st

from kvviz.caches.starters.write import EXERCISES
from kvviz.experiments.questions import QUESTIONS, WAITS, Question
from kvviz.ui.folders import PAGES
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.form import Field, Form, one_of

_TEXT = Path(__file__).with_name("lesson.toml").read_text(encoding="utf-8")
LESSON: dict[str, Any] = tomllib.loads(_TEXT.replace("{waits}", WAITS))
HEADS = ("When", "Part and its page", "You", "The class should say")  # of a plan's columns
WIDTHS = (2, 5, 9, 9)
PLANS: dict[str, Mapping[str, Any]] = {plan["name"]: plan for plan in LESSON["plans"]}


def lesson() -> None:
    """Draw the part that is chosen; the address names it."""
    parts: dict[str, Callable[[], None]] = {
        **{name: partial(_plan, plan) for name, plan in PLANS.items()},
        "Questions and answers": _questions,
        "What goes wrong": _wrong,
        "Write your own": _exercises,
        "Handout": _handout,
    }
    form = Form("lesson", "p_", view=Field(next(iter(parts)), one_of(*parts)))
    look: dict[str, Any] = {"required": True, "label_visibility": "collapsed"}
    look["format_func"] = lambda name: name if name in PLANS else f":material/description: {name}"
    chosen = st.pills("Part", **look, **form.choices("view", list(parts)))
    form.write()
    parts[chosen]()
    st.caption(TEXTS["lesson"]["print"])


def _plan(plan: Mapping[str, Any]) -> None:
    goals, before = st.columns([5, 3], gap="medium")
    with goals:
        _goals("At the end everybody can")
    with before:
        st.markdown(f"**Before the lesson**\n\n{plan['prepare']}")
        if "commands" in plan:
            with st.expander("How to start kvviz for a class"):
                st.markdown(plan["commands"])
    ends = list(accumulate(part["minutes"] for part in plan["parts"]))
    with st.container(key="lesson_parts"):
        for column, words in zip(st.columns(WIDTHS, gap="medium"), HEADS, strict=True):
            column.caption(words)
        for part, end in zip(plan["parts"], ends, strict=True):
            when, what, does, says = st.columns(WIDTHS, gap="medium")
            when.markdown(f"**{end - part['minutes']}–{end} min**")
            link = {"label": f":primary[**{part['title']}**]", "query_params": part.get("query")}
            with what.container(gap=None):
                st.page_link(PAGES / f"{part['page']}.py", **link)
                st.caption(TEXTS[part["page"]]["navigation"])
            does.markdown(f"**{HEADS[2]}.** {doing(part)}")
            says.markdown(f"**{HEADS[3]}.** {part['class_says']}")


def doing(part: Mapping[str, Any]) -> str:
    """What the teacher does, with the questions that it names by their numbers."""
    numbers = [f"{list(QUESTIONS).index(name) + 1} ({QUESTIONS[name].topic})" for name in part.get("questions", ())]
    return part["do"].replace("{questions}", ", ".join(numbers))


def _goals(start: str) -> None:
    st.markdown("\n".join([f"**{start}**", "", *(f"- {goal}" for goal in LESSON["goals"])]))


def _questions() -> None:
    flow = st.container(key="lesson_questions")  # its style numbers them
    for name, question in QUESTIONS.items():
        check = question.check
        right = f"**✓ {check.shown(check.answer)}**"
        choices = [right if str(i) == check.answer else choice for i, choice in enumerate(check.choices)]
        with flow.container(key=f"lesson_question_{name}", gap="xsmall"):
            st.header(question.question, anchor=name)
            st.markdown(question.short)
            told = f"{' · '.join(choices)}  \n" if choices else f"{right}. "
            st.caption(f"**To check.** {check.ask}  \n{told}{check.because}")
            with st.expander("The whole answer"):
                st.markdown(question.text)


def _wrong() -> None:
    place = st.container(key="lesson_wrong")
    for case in LESSON["wrong"]:
        place.markdown(f"**{case['what']}** {case['so']}")


def _exercises() -> None:
    st.markdown(TEXTS["lesson"]["exercises"])
    for number, (name, exercise) in enumerate(EXERCISES.items(), 1):
        st.markdown(f"**{number}. {exercise.title}.** {exercise.task}\n\n*Done when:* {exercise.goal}")
        st.code(f"kvviz new-cache my-{name} --exercise {name}", language="bash")
        with st.expander("Hints, one after the other"):
            st.markdown("\n".join(f"1. {hint}" for hint in exercise.hints))


_AXES = """\
<div class="kv-axes">time per token<i></i><small>new tokens</small></div>"""
_BOX = '<u class="kv-box"></u>'
_BLANKS = re.compile("_{4,}")


def _on_paper(text: str) -> str:
    """HTML of a line of the handout: underscores are a rule to write on, to the line's end if nothing follows it."""
    parts = [part.strip() for part in _BLANKS.split(html.escape(text).replace("☐", _BOX))]
    rest = '<i class="kv-rest"></i>' if len(parts) > 1 and not parts[-1] else ""
    return " <i></i> ".join(parts[:-1] if rest else parts) + rest


def _handout() -> None:
    with st.container(key="handout"):
        st.header("The KV cache: see it work", anchor=False)
        st.html(f'<p class="kv-line">{_on_paper("Date ____ Name ____")}</p>')
        _goals("I can")
        for line in LESSON["lines"]:
            blanks = "".join(f'<li class="kv-line">{_on_paper(blank)}</li>' for blank in line["blanks"])
            st.html(f'<p class="kv-line kv-lead">{_on_paper(line["title"])}</p><ul>{blanks}</ul>')
        st.markdown("**Questions**")
        questions = "".join(f"<li>{_asked(question)}</li>" for question in QUESTIONS.values())
        st.html(f'<ol class="kv-asked">{questions}</ol>')


def _asked(question: Question) -> str:
    """HTML of a question with the room to answer it on paper."""
    check = question.check
    choices = "".join(f"<div>{_BOX}{html.escape(choice)}</div>" for choice in check.choices)
    unit = f' <span class="kv-unit"><i></i> {html.escape(check.unit)}</span>' if check.unit else ""
    return f"{html.escape(check.ask)}{choices}{unit}{_AXES if check.strokes else ''}"
