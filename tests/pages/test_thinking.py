"""The questions on their pages, as Streamlit runs them: asked first, then answered with what the page has at hand."""

import json

import pytest

from kvviz.experiments.comparison.figures import HEADLINE
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.questions import QUESTIONS, on_page
from kvviz.experiments.sweep.spec import SweepSpec
from tests.pages.conftest import answer_all, open_all


@pytest.fixture
def visit(open_page, scheduler_without_worker, store):
    open_page.scheduler, open_page.store = scheduler_without_worker, store
    return open_page


def answers(app, page):
    """The page's answers by question's id, for somebody who has answered."""
    found = boxes(answer_all(app), page)
    return {name: box.markdown[-1].value for name, box in found.items()}


def boxes(app, page):
    by_label = {box.label: box for box in app.expander}
    return {question.id: by_label[question.question] for question in on_page(page)}


def test_who_has_not_answered_is_asked_and_told_nothing(visit):
    app = visit("compare")
    assert not any(box.proto.expanded or box.markdown for box in boxes(app, "compare").values()), "closed and empty"
    for name, box in boxes(open_all(app), "compare").items():
        check = QUESTIONS[name].check
        assert [part.value for part in box.markdown] == [f"**{check.ask}**"] and not box.success and not box.warning


def test_the_short_answers_stand_under_the_boxes(visit):
    (listed,) = [part.value for part in visit("anatomy").main.markdown if part.value.startswith("- ")]
    assert [question.short in listed for question in on_page("anatomy")] == [True] * 4


def document(uncached, cached, model="tiny-gpt2"):
    runs = [("uncached", uncached), ("cached", cached)]
    return {
        "model": model,
        "prompt_tokens": 5,
        "runs": [
            dict.fromkeys(HEADLINE) | {"mode": mode, "step_s": steps, "ttft_s": steps[0], "itl_s": steps[2]}
            for mode, steps in runs
        ],
    }


def done(scheduler, found):
    own = scheduler.submit(ComparisonSpec(model="tiny-gpt2", prompt="x"))
    scheduler.record(own, {"t": "done", "document": found})
    return own


@pytest.mark.slow
def test_the_live_page_answers_with_the_run_that_it_shows(visit):
    app = visit("live")
    assert "press Run above" in answers(app, "live")["square"]
    watched = done(visit.scheduler, document([0.011, 0.012, 0.02, 0.0345], [0.011, 0.003, 0.003, 0.00321]))
    done(visit.scheduler, document([0.1, 0.2, 0.3, 0.777], [0.1, 0.1, 0.1, 0.1]))
    app.run()
    assert "777 ms" in answers(app, "live")["square"], "without a link it follows the device"
    app = visit("live", comparison=watched)
    found = answers(app, "live")["square"]
    assert "12 ms" in found and "34.5 ms" in found and "3.21 ms" in found and "777" not in found


@pytest.mark.slow
def test_a_name_from_elsewhere_is_text(visit):
    done(visit.scheduler, document([0.1, 0.2, 0.3, 0.4], [0.1, 0.1, 0.1, 0.1], model="![x](https://example.org/x.png)"))
    found = answers(visit("live"), "live")["square"]
    assert "example.org" in found and "![x](" not in found


def test_the_compare_page_answers_with_the_picked_runs(visit):
    app = visit("compare")
    assert "pick the runs" in answers(app, "compare")["total"]


@pytest.mark.slow
def test_the_sweep_page_answers_when_the_sweep_is_over(visit):
    spec = SweepSpec(models=("tiny-gpt2",), prompt_tokens=(8, 16), new_tokens=(2,))
    own = visit.scheduler.submit(spec)
    for cell, seconds in ((0, [0.4, 0.01]), (1, [0.4, 0.03])):
        visit.scheduler.record(
            own, {"t": "cell_pass", "cell": cell, "mode": "uncached", "round": 0, "s": seconds, "same": True}
        )
    app = visit("sweep", sweep=own)
    assert "press Run above" in answers(app, "sweep")["metrics"]
    visit.scheduler.record(own, {"t": "done", "document": {}})
    app.run()
    found = answers(app, "sweep")["metrics"]
    assert "from a prompt of 8 tokens to 16" in found and "climbs to 3 times (10 ms to 30 ms)" in found


@pytest.mark.slow
def test_the_memory_page_answers_with_the_chosen_model(visit):
    app = visit("memory", models="llama-3.1-8b", tokens="8192")
    found = answers(app, "memory")["quantization"]
    assert "LLaMA 3.1-8B" in found and found.count("cache 1.0 GiB (1,073,741,824 B)") == 2
    assert "weights in bfloat16: 15.0 GiB" in found and "weights in int4: 3.7 GiB" in found


@pytest.mark.slow
def test_the_live_chart_is_told_how_wide_a_guess_is(visit):
    app = visit("live")
    app.selectbox(key="new_tokens").select(64).run()
    sent = [json.loads(part.proto.json) for part in app.get("bidi_component") if part.proto.json]
    (guess,) = [data["guess"] for data in sent if "guess" in data]
    assert guess == {"new_tokens": 64, "modes": [["uncached", "No cache"], ["cached", "KV cache"]]}


def headings(app):
    return [part.value for part in app.header]


@pytest.mark.slow
def test_chart_verdict_and_answers_are_of_one_run(visit):
    done(visit.scheduler, document([0.1, 0.2, 0.3, 0.777], [0.1, 0.1, 0.1, 0.1]))
    app = visit("live")
    assert "777 ms" in answers(app, "live")["square"] and "What the curves say" in headings(app)
    visit.scheduler.submit(ComparisonSpec(model="tiny-gpt2", prompt="x"))
    app.run()
    assert "press Run above" in answers(app, "live")["square"], "the chart follows the new run by now"
    assert "What the curves say" not in headings(app)
