"""The quiz: an answer is judged at once, the first one counts, both rounds are kept apart, and the summary adds up."""

import re

import pytest

from kvviz.experiments.questions import QUESTIONS
from kvviz.ui.quiz.proof import PROOFS
from tests.pages.conftest import said

pytestmark = pytest.mark.slow


def at(open_page, question, **link):
    return open_page("quiz", question=question, **link)


def judged(app):
    return [part.value for part in [*app.success, *app.warning]]


def test_a_number_is_judged_at_once_and_then_closed(open_page):
    app = at(open_page, "total")
    assert not judged(app) and not app.expander
    app.text_input(key="answer_before_total").input("16").run()
    assert not app.exception
    (words,) = judged(app)
    assert words.startswith("You said: 16 tokens. It is: 22 tokens.") and QUESTIONS["total"].check.because in words
    assert not app.text_input, "nothing more to answer"
    assert QUESTIONS["total"].check.because not in said(app), "said once"
    assert any(link.proto.label == QUESTIONS["total"].see.words for link in app.get("page_link"))
    assert app.expander[0].label == "The whole answer"


def test_a_choice_that_is_right_is_said_to_be(open_page):
    app = at(open_page, "why-not-q")
    app.radio(key="answer_before_why-not-q").set_value("2").run()
    assert not judged(app) and said(app).count(QUESTIONS["why-not-q"].check.because) == 1, "said once, where it stands"
    assert ":green[:material/check_circle:] **none** *(your answer)*" in said(app)
    assert ":material/circle: all of them" in said(app), "what there was to choose from stays"


def test_the_address_names_question_and_round_and_next_goes_on(open_page):
    app = at(open_page, "square", round="after")
    app.button(key="q_next").click().run()
    assert app.query_params["question"] in ("ttft", ["ttft"]) and app.query_params["round"] in ("after", ["after"])
    assert "Question 2 of 12 · The first token" in [part.value for part in app.header]
    assert QUESTIONS["ttft"].check.ask in said(app)


def test_the_rounds_are_kept_apart_and_the_summary_compares_them(open_page):
    app = at(open_page, "summary", round="after")
    right = {name: question.check.answer for name, question in QUESTIONS.items()}
    app.session_state["answers"] = {"before": {**right, "square": "7", "total": "7"}, "after": {**right, "total": "7"}}
    app.run()
    assert app.header[0].value == "11 of 12 right, 0 not answered"
    assert "Of 12 questions answered both times, 10 were right before and 11 after." in said(app)
    again = [part.value for part in app.markdown if QUESTIONS["total"].question in part.value]
    assert again and QUESTIONS["square"].question not in said(app)
    app.button(key="q_again").click().run()
    assert app.header[0].value == "0 of 12 right, 12 not answered"
    assert len(app.session_state["answers"]["before"]) == 12


def test_a_drawn_answer_is_read_as_the_browser_says_it(open_page, monkeypatch):
    from kvviz.ui.quiz import answers

    real = answers._sketch

    def drawn(**fields):
        real(**fields)
        return type("Said", (), {"drawn": "climb,climb"})()

    monkeypatch.setattr(answers, "_sketch", drawn)
    app = at(open_page, "parting")
    (words,) = judged(app)
    assert "No cache climbs, KV cache climbs" in words
    assert "It is: No cache climbs, KV cache stays flat" in words


def test_every_answer_has_a_figure_that_proves_it():
    assert PROOFS.keys() == QUESTIONS.keys()
    for name, draw in PROOFS.items():
        claim, figure, source = draw()
        assert figure.data and source.endswith("."), name
        check = QUESTIONS[name].check
        if check.unit and name != "heads":
            assert re.search(rf"(?<![\d.,]){check.right}(?![\d,])", claim), f"{name}: the claim carries the answer"
    low, high = PROOFS["heads"]()[1].data[0].y
    assert high / low == float(QUESTIONS["heads"].check.right)
