"""The roofline page as Streamlit runs it, without a browser: the form, the wait, the measured document."""

import gc
import re
from dataclasses import replace
from functools import partial

import pytest

from kvviz.base.settings import Limits
from kvviz.base.words import millis, two_digits
from kvviz.charts.claims import of_most, of_roofline
from kvviz.charts.roofline import CLASSES, PIECES, uncached_alone, untold, waiting
from kvviz.experiments.roofline import run as roofing
from kvviz.experiments.roofline.run import run
from kvviz.experiments.roofline.spec import RoofSpec
from kvviz.experiments.roofline.words import batch_moves, sides
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.roofline.form import progress
from kvviz.ui.shared.experiment import recording
from tests.cost.test_roofline import CEILINGS
from tests.pages.conftest import answered, charts, said

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def records(bench):
    """A ladder really measured on a tiny model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(roofing, "_ceilings", lambda device: CEILINGS)
        patch.setattr(gc, "collect", lambda *_: 0)  # before every pass: it would take half of the time
        return list(run(RoofSpec("tiny-llama", tokens=64, batch=2), bench()))


@pytest.fixture
def visit(open_page):
    """`visit(tokens="64")` is the page with that in its address."""
    return partial(open_page, "roofline")


@pytest.fixture
def measured(visit, records):
    app = visit(model="tiny-llama", tokens="64", batch="2")
    work = answered(app, "r", lambda _: records)
    assert app.scheduler.jobs() == [work]
    return app


def test_nothing_is_measured_before_it_is_asked_for_and_a_recording_of_it_is_seen(visit):
    app = visit()
    assert app.scheduler.jobs() == []
    assert app.selectbox(key="r_model").value == "gpt2"
    assert "This is a **recording** of GPT-2 small" in said(app) and len(charts(app)) == 2
    assert {p["bound"] for p in recording("roofline")["document"]["points"] if p["batch"] == 1} >= {"memory", "compute"}
    app.button(key="r_measure").click().run()
    (work,) = app.scheduler.jobs()
    assert recording("roofline")["document"]["spec"] == work.spec.to_dict()
    assert app.button(key="r_measure").disabled and "recording" not in said(app)
    assert "prefills and decode steps takes " in said(app)


@pytest.mark.slow
def test_a_link_fills_the_form_and_the_form_the_link(visit):
    app = visit(model="gpt2", weights="random", tokens="256", batch="4", dtype="bfloat16")
    app.button(key="r_measure").click().run()
    (work,) = app.scheduler.jobs()
    assert work.spec == RoofSpec("gpt2", "random", 256, 4, "bfloat16")
    app.selectbox(key="r_batch").select(8).run()
    assert app.query_params["batch"] == "8"


def test_a_link_with_nonsense_becomes_what_the_model_has(visit):
    app = visit(model="gpt2", tokens="9000", batch="3", dtype="x")
    assert app.selectbox(key="r_tokens").value == 512  # 1,024 positions, and the timed steps need a few more
    assert (app.selectbox(key="r_batch").value, app.selectbox(key="r_dtype").value) == (2, "float32")


def test_the_form_offers_what_the_server_allows(visit, scheduler_without_worker):
    scheduler_without_worker._given_limits = replace(Limits(), prompt_tokens=300, batch=4)
    app = visit()
    assert app.selectbox(key="r_tokens").options[-1] == "256"
    assert app.selectbox(key="r_batch").options[-1] == "4"


def test_a_model_that_cannot_fit_is_refused_in_a_sentence(visit):
    app = visit(model="llama-3.1-405b")
    assert "this choice needs" in app.warning[0].value
    assert not any(button.key == "r_measure" for button in app.button)
    assert app.scheduler.jobs() == []


@pytest.mark.slow
def test_while_it_runs_it_can_be_stopped_and_says_so(visit):
    app = visit(model="tiny-llama", tokens="64")
    app.button(key="r_measure").click().run()
    (work,) = app.scheduler.jobs()
    assert app.button(key="r_measure").disabled and not app.button(key="r_stop").disabled
    app.button(key="r_stop").click().run()
    assert not app.exception
    assert work.state == "stopped"
    assert "was stopped" in app.warning[0].value
    assert not app.button(key="r_measure").disabled


@pytest.mark.slow
def test_one_that_failed_says_why(visit):
    app = visit(model="tiny-llama", tokens="64")
    app.button(key="r_measure").click().run()
    (work,) = app.scheduler.jobs()
    app.scheduler.record(work.id, {"t": "failed", "message": "no such thing"})
    app.run()
    assert [warning.value for warning in app.warning] == ["no such thing"]


@pytest.mark.slow
def test_how_far_it_is(records):
    assert progress({}) == (0.0, "Loading the model …")
    assert progress(records[0]) == (0.0, "Measuring the device's ceilings …")
    point = next(i for i, record in enumerate(records) if record["t"] == "point")
    share, words = progress(records[point])
    assert 0 < share < 0.9 and words.startswith(f"1 of {records[point]['of']}: prefill at 16 tokens, ")
    assert progress(records[-2])[1].startswith("Now where the time goes")


def test_a_model_with_a_recording_of_its_own_shows_that_one(visit):
    app = visit(model="mini-gpt2")
    assert "This is a **recording** of mini-gpt2" in said(app)
    assert "launch-bound" in said(opened(app, "Under the roof"))


def opened(app, tab):
    """Open a tab of what was measured."""
    app.session_state["r_part"] = tab
    return app.run()


def drawn_roof(app):
    return next(one for one in charts(app) if any("roof" in trace["name"] for trace in one["data"]))


@pytest.mark.slow
def test_the_points_lie_where_they_were_measured(measured, records):
    document = records[-1]["document"]
    bars, profiles = charts(measured)
    assert measured.header[0].value == of_roofline(document)
    (roof,) = charts(opened(measured, "Under the roof"))
    assert measured.header[0].value == sides(document)
    (batches,) = charts(opened(measured, "Batches"))
    names = [trace["name"] for trace in roof["data"]]
    assert names == [
        "measured roof: 20 GB/s, 90 GFLOP/s",
        "prefill",
        "decode",
        "compiled step",
    ]
    prefills = [p for p in document["points"] if p["phase"] == "prefill"]
    assert len(roof["data"][names.index("prefill")]["customdata"]) == len(prefills)
    assert roof["layout"]["xaxis"]["type"] == roof["layout"]["yaxis"]["type"] == "log"
    lines = [trace["name"] for trace in batches["data"] if trace["mode"] != "markers"]
    for tokens, name in zip((32, 64), lines[:2], strict=True):
        assert re.fullmatch(
            rf"KV cache at {tokens}:<br>[\d,.]+ times one(<br>◯ caches outweigh<br>weights from \d+ on)?", name
        )
    for tokens, name in zip((32, 64), lines[2:], strict=True):
        assert re.fullmatch(rf"no cache at {tokens}:<br>at most [\d,.]+", name)
    assert [bar["name"] for bar in profiles["data"]] == [title for title, _ in CLASSES.values()]
    assert {bar["name"] for bar in bars["data"]} <= {title for title, _ in PIECES.values()}


@pytest.mark.slow
def test_the_page_says_what_bounds_what_and_works_two_points_out(measured, records):
    document, words = records[-1]["document"], said(measured)
    rates = ", ".join(untold(waiting(document)))
    assert TEXTS["roofline"]["spent"].format(rates=f" ({rates})" if rates else "") in words
    table = next(table.value for table in measured.dataframe if "By itself" in table.value)
    assert list(table["By itself"]) == [millis(p["unprofiled_s"]) for p in document["profiles"]]
    words = said(opened(measured, "Under the roof"))
    assert all(sentence in words for sentence in document["sentences"])
    latex = [one.value for one in measured.latex]
    assert len(latex) == 2 and all(r"B \cdot I &= 20\,\mathrm{GB/s}" in one for one in latex)
    words = said(opened(measured, "Batches"))
    alone = " and ".join(f"{two_digits(rate)} tokens/s at {at}" for at, rate in uncached_alone(document).items())
    assert f"Dashed: the most that the roof allows without a cache. One sequence was measured at {alone}." in words
    assert batch_moves(document) in words and "sequences share each weight" in batch_moves(document)
    assert of_most(document) in words and len(measured.latex) == 1


@pytest.mark.slow
def test_a_time_that_was_disturbed_is_not_held_against_another(visit, records):
    document = records[-1]["document"]
    loud = [
        {**p, "unprofiled_s": 2 * p["wall_s"]} if p["forward"] == "compiled step" else p for p in document["profiles"]
    ]
    app = visit(model="tiny-llama", tokens="64", batch="2")
    answered(app, "r", lambda _: [*records[:-1], {"t": "done", "document": {**document, "profiles": loud}}])
    words = said(app)
    assert "are not held against each other" in words and "The same step, compiled" not in words
    assert "The machine was busy with something else" in app.warning[0].value


@pytest.mark.slow
def test_another_roof_is_the_data_sheets_or_unknown(measured):
    opened(measured, "Under the roof")
    measured.selectbox(key="r_beside").select("h100-sxm").run()
    assert not measured.exception
    names = [trace["name"] for trace in drawn_roof(measured)["data"]]
    assert "NVIDIA H100 80 GB (SXM), by its data sheet" in names and "these forward passes there, at most" in names
    assert "data-center/h100/" in said(measured) and "not measured" in said(measured)
    measured.selectbox(key="r_beside").select("apple-m1-16gb").run()
    assert measured.info[0].value.startswith("Unknown: no data sheet with the float32 peak of Apple M1")
    assert not any("by its data sheet" in trace["name"] for trace in drawn_roof(measured)["data"])


@pytest.mark.slow
def test_somebody_elses_measurement_is_shown_at_once_and_can_be_taken_again(measured, visit):
    other = visit(model="tiny-llama", tokens="64", batch="2")
    assert "recording" not in said(other)
    assert other.button(key="r_measure").label == "Measure again"
    other.button(key="r_measure").click().run()
    assert [work.active for work in other.scheduler.jobs()] == [False, True]
