"""The page of mistakes as Streamlit runs it, without a browser: what it asks for, and how it shows what came back."""

from functools import partial
from html import escape

import pytest
import torch

from kvviz.decoding.scratch.load import from_transformers
from kvviz.decoding.scratch.pitfalls import PITFALLS
from kvviz.experiments.inside.mistakes import Mistakes
from kvviz.models.text import ByteCodec
from kvviz.ui.mistakes.results import verdict
from kvviz.ui.shared.experiment import kept_look
from tests.pages.conftest import charts

ABOUT = {"t": "look", "title": "a model", "weights": "random", "note": "", "device": "a test's device"}


@pytest.fixture
def visit(open_page):
    """`visit(mistake="twice")` is the page with that in its address."""
    return partial(open_page, "mistakes")


@pytest.fixture(scope="module")
def made(load):
    """`made(name)`: what the worker finds of a mistake."""
    model = from_transformers(load("tiny-gpt2").model)
    prompt = torch.arange(5, 16)[None] * 7 % 200
    decodes = Mistakes(model, ByteCodec(512), prompt, new_tokens=4)
    return lambda name: decodes.make(PITFALLS[name])


def answer(app, found):
    """The worker's records, and the page after them."""
    (work,) = app.scheduler.jobs()
    about = {**ABOUT, "dtype": "float32", "spec": work.spec.to_dict()}
    for record in ({"t": "loading"}, about, found, {"t": "done", "document": {}}):
        app.scheduler.record(work.id, record)
    app.run()
    assert not app.exception
    return app


def said(app):
    return " ".join(element.value for element in [*app.markdown, *app.get("html")] if isinstance(element.value, str))


def html(app):
    return " ".join(element.proto.body for element in app.get("html"))


@pytest.mark.slow
def test_the_first_mistake_is_looked_at_on_arrival(visit):
    (work,) = visit().scheduler.jobs()
    assert (work.kind, work.spec.clock, work.spec.model) == ("mistake", None, "mini-gpt2")


def test_a_link_chooses_and_the_address_says_what_is_shown(visit):
    app = visit(mistake="twice", model="tiny-gpt2", prompt="A prompt of mine")
    (work,) = app.scheduler.jobs()
    assert (work.spec.clock, work.spec.model, work.spec.prompt) == (None, "tiny-gpt2", "A prompt of mine")
    link = {name: value[0] if isinstance(value, list) else value for name, value in app.query_params.items()}
    assert link == {"mistake": "twice", "model": "tiny-gpt2", "prompt": "A prompt of mine"}


def test_nonsense_in_a_link_is_as_if_not_said(visit):
    app = visit(mistake="<script>", model="gpt-17")
    (work,) = app.scheduler.jobs()
    assert (app.session_state.b_menu, work.spec.model) == ("positions", "mini-gpt2")


def test_one_mistake_is_chosen_over_all_groups(visit, scheduler_without_worker):
    app = visit()

    def chosen():
        return [app.session_state[f"b_pills_{number}"] for number in range(3)]

    assert chosen() == ["positions", None, None]
    app.button_group(key="b_pills_2").set_value("no-sync").run()
    assert chosen() == [None, None, "no-sync"] and "no-sync" in app.query_params["mistake"]
    app.button_group(key="b_pills_2").set_value(None).run()
    assert chosen() == [None, None, "no-sync"]


def test_waiting_is_told(visit, scheduler_without_worker):
    app = visit(mistake="twice")
    assert any("Waiting" in info.value for info in app.info)


def test_the_first_mistake_is_shown_as_recorded_until_it_is_made_here(visit, scheduler_without_worker):
    app = visit()
    (work,) = app.scheduler.jobs()
    kept = kept_look(work.spec)
    assert len(charts(app)) == 1 and "The text differs from the **3rd** new token on" in said(app)
    assert any("This is a recording made on" in words.value and kept["made"] in words.value for words in app.markdown)
    answer(app, {**kept["records"][1], "first_difference": None})
    assert "The text differs" not in said(app)
    assert not any("recorded on" in words.value for words in app.markdown)


def test_an_empty_prompt_is_a_sentence(visit):
    app = visit()
    app.text_input(key="b_prompt").set_value("").run()
    assert not app.exception
    assert any("the prompt is empty" in warning.value for warning in app.warning)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["positions", "square-mask", "stale", "gradients"])  # a mistake of each kind of harm
def test_each_mistake_shows_its_loop_and_its_harm(visit, made, name):
    app = visit(mistake=name, model="tiny-gpt2")
    found = made(name)
    answer(app, found)
    assert html(app).count("kv-fault") - html(app).count(".kv-fault") >= 1
    assert escape(PITFALLS[name].mend) in html(app)
    assert ": Tensor" not in html(app) and f"def {PITFALLS[name].loop}(model, prompt, choose, steps):" in html(app)
    if found["wrong"]["crash"]:
        assert found["wrong"]["crash"]["message"] in app.error[0].value
    else:
        assert len(charts(app)) == 1


@pytest.mark.slow
def test_the_first_token_that_differs_is_named_and_what_a_text_holds_is_never_run(visit, made):
    app = visit(mistake="positions", model="tiny-gpt2")
    answer(app, {**made("positions"), "first_difference": 2, "prompt": ["<script>alert(1)</script>"]})
    assert "The text differs from the **3rd** new token on" in said(app)
    assert "<script>" not in html(app)
    assert "&lt;script&gt;" in html(app)


def test_the_stopwatch_says_its_verdict(visit):
    app = visit(mistake="no-sync")
    verdict = "There is nothing to see on a CPU: it has done its work."
    answer(
        app,
        {"t": "mistimed", "mistake": "no-sync", "device": "cpu", "wrong": [], "right": [], "verdict": verdict},
    )
    assert verdict in said(app)
    assert not charts(app)


def test_a_look_that_failed_says_why_and_is_not_taken_again_by_itself(visit):
    app = visit()
    (work,) = app.scheduler.jobs()
    app.scheduler.record(work.id, {"t": "failed", "message": "no such thing"})
    for _ in range(2):
        app.run()
        assert [warning.value for warning in app.warning] == ["no such thing"]
    assert app.scheduler.jobs() == [work]
    app.button[0].click().run()
    assert len(app.scheduler.jobs()) == 2


def lane(deltas=(0, 0, 0), work=100, alive=1024):
    return {"ids": [1, 2, 3], "deltas": deltas, "multiply_adds": [work] * 3, "alive": [alive] * 3}


@pytest.mark.parametrize(
    ("first", "wrong", "said"),
    [
        (2, lane((0, 5, 6)), "The text differs from the **3rd** new token on, the logits already from the **2nd**."),
        (0, lane((5, 5, 6)), "The text differs from the **1st** new token on."),
        (
            None,
            lane(work=250),
            "A user notices nothing in the text: every token is right, for **2.5 times** the multiply-adds.",
        ),
        (
            None,
            lane(alive=4096),
            "A user notices nothing in the text: every token is right. After 3 tokens **4.0 KiB** are kept alive "
            "instead of **1.0 KiB**.",
        ),
        (
            None,
            lane((0, 0.1, 0.2)),
            "A user notices nothing this time: every token happens to be right, but the logits are off.",
        ),
    ],
)
def test_the_page_says_what_a_user_notices(first, wrong, said):
    assert verdict({"first_difference": first, "right": lane(), "wrong": wrong}) == said


@pytest.mark.slow
def test_a_mistake_is_shown_as_soon_as_it_is_made_though_others_are_not(visit, made, scheduler_without_worker):
    app = visit(mistake="twice", model="tiny-gpt2")
    (work,) = app.scheduler.jobs()
    about = {**ABOUT, "dtype": "float32", "spec": work.spec.to_dict()}
    for record in ({"t": "loading"}, about, made("positions")):
        app.scheduler.record(work.id, record)
    assert any("Measuring here" in info.value for info in app.run().info)
    app.scheduler.record(work.id, made("twice"))
    app.run()
    assert not app.info and escape(PITFALLS["twice"].mend) in html(app) and len(charts(app)) == 1
    assert app.scheduler.jobs() == [work], "the others are made by the same work"
