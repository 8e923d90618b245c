"""The quiz: Check judges an answer, the first one counts, both rounds are kept apart, and the summary adds up."""

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


def check(app, question):
    app.button(key=f"check_answer_before_{question}").click().run()
    assert not app.exception


def test_a_number_is_judged_when_it_is_checked_and_then_closed(open_page):
    app = at(open_page, "total")
    assert not judged(app) and not app.expander
    for said_first, words in (("", "Answer first, then press Check."), ("many", "Type a number, such as 12")):
        app.text_input(key="answer_before_total").input(said_first)
        check(app, "total")
        assert judged(app)[0].startswith(words) and not app.session_state["answers"]["before"]
    app.text_input(key="answer_before_total").input("16").run()
    assert not app.session_state["answers"]["before"], "nothing is judged before Check"
    app.text_input(key="answer_before_total").input("16")
    check(app, "total")
    (words,) = judged(app)
    assert words.startswith("**Not quite.** You said: 16 tokens. It is: 22 tokens.")
    assert QUESTIONS["total"].check.because in words
    assert not app.text_input, "nothing more to answer"
    assert QUESTIONS["total"].check.because not in said(app), "said once"
    assert any(link.proto.label == QUESTIONS["total"].see.words for link in app.get("page_link"))
    assert app.expander[0].label == "The whole answer"


def test_a_choice_waits_for_check_and_what_there_was_to_choose_from_stays(open_page):
    app = at(open_page, "why-not-q")
    check(app, "why-not-q")
    assert judged(app) == ["Answer first, then press Check."]
    app.radio(key="answer_before_why-not-q").set_value("1").run()
    assert app.button(key="q_next").label == "Skip this question" and not app.expander
    app.radio(key="answer_before_why-not-q").set_value("2")
    check(app, "why-not-q")
    assert judged(app) == [f"**Right.** {QUESTIONS['why-not-q'].check.because}"]
    assert ":green[:material/check_circle:] **none** *(your answer)*" in said(app)
    assert ":material/circle: all of them" in said(app)
    assert app.button(key="q_next").label == "Next question"


def test_the_address_names_question_and_round_and_next_goes_on(open_page):
    app = at(open_page, "square", round="after")
    app.button(key="q_next").click().run()
    assert app.query_params["question"] in ("ttft", ["ttft"]) and app.query_params["round"] in ("after", ["after"])
    assert "Question 3 of 12 · The first token" in [part.value for part in app.header]
    assert QUESTIONS["ttft"].check.ask in said(app)


def test_the_rounds_are_kept_apart_and_the_summary_compares_them(open_page):
    app = at(open_page, "summary", round="after")
    right = {name: question.check.answer for name, question in QUESTIONS.items()}
    app.session_state["answers"] = {"before": {**right, "square": "7", "total": "7"}, "after": {**right, "total": "7"}}
    app.run()
    assert app.header[0].value == "11 of 12 right, 0 not answered"
    assert "Of 12 questions answered both times, 10 were right before and 11 after." in said(app)
    assert QUESTIONS["total"].check.ask in said(app) and QUESTIONS["square"].check.ask not in said(app)
    assert "You said: 7 tokens. It is: 22 tokens." in said(app)
    app.button(key="q_again").click().run()
    assert app.header[0].value == "0 of 12 right, 12 not answered"
    assert len(app.session_state["answers"]["before"]) == 12


def test_a_drawn_answer_is_read_as_the_browser_says_it(open_page, monkeypatch):
    from kvviz.ui.quiz import answers

    real = answers._sketch
    missing, app = "First draw each line, or pick its shape.", at(open_page, "parting")
    assert app.button(key="check_answer_before_parting").disabled, "nothing is drawn yet"
    assert missing in [words.value for words in app.caption]

    def drawn(**fields):
        real(**fields)
        return type("Said", (), {"drawn": "climb,climb"})()

    monkeypatch.setattr(answers, "_sketch", drawn)
    app = at(open_page, "parting")
    assert not judged(app), "a drawing waits for Check, too"
    assert missing not in [words.value for words in app.caption]
    check(app, "parting")
    (words,) = judged(app)
    assert "No cache climbs, KV cache climbs" in words
    assert "It is: No cache climbs, KV cache stays flat" in words


def test_a_class_gets_no_answers_before_the_lesson_unless_somebody_asks_for_them(open_page):
    app = at(open_page, "why-not-q")
    app.session_state["in_room"] = True  # as the browser says it
    app.run().radio(key="answer_before_why-not-q").set_value("0")
    check(app, "why-not-q")
    because, counted = QUESTIONS["why-not-q"].check.because, "1 of 12 answered"

    def told():
        return because in said(app) + " ".join(judged(app)) or bool(app.expander) or ", 0 right" in counts(app)

    def counts(app):
        return " ".join(html.proto.body for html in app.get("html"))

    assert "You said: **all of them**. Your answer is kept." in said(app) and not told()
    assert [part.value for part in app.info] == ["The class discusses the answers after the lesson."]
    assert counted in counts(app) and app.button(key="q_next").label == "Next question"
    assert "9 · Keys, values, queries :material/schedule:" in app.get("button_group")[1].options
    app.session_state["q_question"] = "summary"
    app.run()
    assert app.header[0].value == counted and not told()
    app.session_state["q_round"] = "after"
    assert app.run().header[0].value == "0 of 12 right, 12 not answered", "after the lesson as without a class"
    app.session_state["q_round"], app.session_state["q_question"] = "before", "why-not-q"
    app.run().button(key="q_show").click().run()
    assert judged(app) == [f"**The answer is: none.** {because}"] and f"{counted}, 0 right" in counts(app)


def test_every_answer_has_a_figure_that_proves_it():
    assert PROOFS.keys() == QUESTIONS.keys()
    for name, draw in PROOFS.items():
        claim, figure, source = draw()
        assert figure.data and source.endswith("."), name
        answer = QUESTIONS[name].check
        if answer.unit and name != "heads":
            assert re.search(rf"(?<![\d.,]){answer.right}(?![\d,])", claim), f"{name}: the claim carries the answer"
    low, high = PROOFS["heads"]()[1].data[0].y
    assert high / low == float(QUESTIONS["heads"].check.right)
