"""The teacher's page: plans whose minutes add up and whose links lead to pages, the twelve questions, the handout."""

import html
import re

import pytest

from kvviz.caches.starters.write import EXERCISES
from kvviz.experiments.questions import QUESTIONS, ROUNDS
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.frame.tour import STOPS
from kvviz.ui.lesson.plans import LESSON, PLANS, _on_paper, doing
from tests.pages.conftest import said


@pytest.mark.parametrize("name", PLANS)
def test_the_minutes_of_a_plan_add_up_and_its_links_lead_somewhere(name):
    parts = PLANS[name]["parts"]
    assert f"{sum(part['minutes'] for part in parts)} minutes" == name
    for part in parts:
        assert part["page"] in TEXTS and part["class_says"] and part["do"]
        query = part.get("query", {})
        if "tour" in query:
            stop = STOPS[int(query["tour"]) - 1]
            assert stop.page == part["page"] and stop.link.items() <= query.items(), "the stop as the tour sets it up"
        if part["page"] == "quiz":
            assert query["question"] in QUESTIONS and query["round"] in ROUNDS


@pytest.mark.slow
@pytest.mark.parametrize("view", [*PLANS, "Questions and answers", "What goes wrong", "Write your own", "Handout"])
def test_each_part_stands_under_its_address(view, open_page):
    app = open_page("lesson", view=view)
    words = said(app)
    if view in PLANS:
        assert all(part["class_says"] in words for part in PLANS[view]["parts"])
        links = {link.proto.label for link in app.get("page_link")}
        assert {f":primary[**{part['title']}**]" for part in PLANS[view]["parts"]} <= links
    elif view == "What goes wrong":
        assert all(case["so"] in words for case in LESSON["wrong"])
    elif view == "Write your own":
        assert all(exercise.task in words and exercise.goal in words for exercise in EXERCISES.values())
        commands = [code.value for code in app.code]
        assert commands == [f"kvviz new-cache my-{name} --exercise {name}" for name in EXERCISES]
    else:
        words += html.unescape(" ".join(block.proto.body for block in app.get("html")))
        assert all(question.check.ask in words for question in QUESTIONS.values())
        shown = [question.check.because in words for question in QUESTIONS.values()]
        assert all(shown) if view != "Handout" else not any(shown), "a handout gives nothing away"


def test_the_right_answer_to_check_is_marked_once(open_page):
    words = [caption.value for caption in open_page("lesson", view="Questions and answers").caption]
    assert sum(text.count("✓") for text in words) == len(QUESTIONS)
    because = QUESTIONS["why-not-q"].check.because
    assert any(f"all of them · only the next one · **✓ none**  \n{because}" in text for text in words)
    assert any("**✓ 2 GiB**. " in text for text in words)


def test_questions_that_a_plan_names_stand_there_by_their_numbers():
    (part,) = [part for plan in PLANS.values() for part in plan["parts"] if "questions" in part]
    assert "{questions}" in part["do"] and set(part["questions"]) <= set(QUESTIONS)
    named = re.findall(r"(\d+) \(([^)]+)\)", doing(part))
    asked = {str(number): (name, question.topic) for number, (name, question) in enumerate(QUESTIONS.items(), 1)}
    assert [asked[number] for number, _ in named] == [(name, QUESTIONS[name].topic) for name in part["questions"]]
    assert [topic for _, topic in named] == [QUESTIONS[name].topic for name in part["questions"]]


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("Date ____ Name ____", 'Date <i></i> Name<i class="kv-rest"></i>'),
        ("the first ____ ms, the last ____ ms", "the first <i></i> ms, the last <i></i> ms"),
        ("a < b ☐ yes", 'a &lt; b <u class="kv-box"></u> yes'),
    ],
)
def test_underscores_are_rules_to_write_on_and_the_last_reaches_to_the_end_of_its_line(text, drawn):
    assert _on_paper(text) == drawn
