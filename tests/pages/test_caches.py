"""The caches page as Streamlit runs it, without a browser: the form, the wait, the measured document."""

import re
from dataclasses import replace
from functools import partial

import pytest

from kvviz.base.settings import Limits
from kvviz.base.words import human
from kvviz.experiments.cache_designs import run as racing
from kvviz.experiments.cache_designs.spec import RACED, CachesSpec
from kvviz.experiments.cache_designs.words import sentences
from kvviz.experiments.recall.spec import RecallSpec
from kvviz.experiments.recall.words import claim
from kvviz.ui.caches import designs_said
from kvviz.ui.caches.designs_said import as_named_here
from kvviz.ui.caches.form import FORMER, PARTS, PROMPT, progress
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.experiment import recording
from tests.pages.conftest import answered, charts, said

pytestmark = pytest.mark.slow


MODEL, DESIGNS = "tiny-llama", ("concat", "prealloc", "prefix", "sinks", "int8", "static")
SPEC = CachesSpec(MODEL, DESIGNS, prompt="A beginning of all, long enough to be shared by two.", new_tokens=16)


@pytest.fixture(scope="module")
def records(bench):
    """A race really run on a tiny model, its clock once a design."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(racing, "TEXT_TOKENS", 70)
        return list(racing.run(replace(SPEC, repeats=1), bench()))


@pytest.fixture
def visit(open_page):
    """`visit(tokens="32")` is the page with that in its address."""
    return partial(open_page, "caches")


@pytest.fixture
def measured(visit, records):
    """`measured(part)` is the page with that race, at one of its views."""

    def at(part=PARTS[0]):
        app = visit(model=MODEL, tokens="16", prompt=SPEC.prompt, designs=",".join(DESIGNS), part=part)
        if not app.scheduler.jobs():
            work = answered(app, "k", lambda _: records)
            assert app.scheduler.jobs() == [work] and work.spec == SPEC
        return app

    return at


def pills(app):
    return next(group for group in app.get("button_group") if group.key == "k_designs")


def pictures(app):
    return [html.proto.body for html in app.get("html") if 'class="kvp"' in html.proto.body]


def test_nothing_is_measured_before_it_is_asked_for_and_a_recording_of_it_is_seen(visit):
    app = visit()
    assert app.scheduler.jobs() == [] and pills(app).value == list(RACED)
    assert app.header[0].value.startswith("To add one token, “Concatenated” writes ")
    assert "This is a **recording** of mini-gpt2" in said(app)
    assert app.text_area(key="k_prompt").value == PROMPT


def test_a_fold_draws_its_table_once_it_is_opened(visit):
    app = visit(part="Room left empty", opened=set())
    assert len(charts(app)) == 2 and not app.dataframe
    app.session_state["folds_opened"] = {"k_held_figures"}
    assert len(app.run().dataframe) == 1


def test_what_a_fold_says_is_the_same_each_time_it_is_opened(visit, monkeypatch):
    monkeypatch.setattr(designs_said, "fold", lambda _title, _key, draw: (draw(), draw()))
    assert said(visit(part="Facts recalled")).count(designs_said.EVICTING) == 2


@pytest.mark.parametrize(
    ("part", "does"),
    [
        ("Layout", "The slots of each cache are read, not timed"),
        ("Room left empty", "The bytes of 8 caches are read, not timed"),
        ("Bytes and time", "8 caches and no cache, each timed 3 times"),
        ("Quality lost", "8 caches read one text, not timed"),
    ],
)
def test_each_view_of_a_race_says_what_is_measured_for_it(visit, part, does):
    assert re.search(f" to measure here\\. {does}; a run takes (about|less than half a minute)", said(visit(part=part)))


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (
            "Quality lost",
            "“4 bits” holds 30% of the full cache's float32 bytes here, as it keeps at least the newest 32 of 192 "
            "tokens exact. **Of a 16-bit cache the codes would hold up to 60%.** A longer text takes a smaller share, "
            "but always more than the 12.5% of the codes themselves: each group of codes has a scale.",
        ),
        (
            "Facts recalled",
            "“4 bits” holds 19% of the full cache's float32 bytes here, as it keeps at least the newest 32 of 1,006 "
            "tokens exact. **Of a 16-bit cache the codes would hold up to 38%.** A longer text takes a smaller share, "
            "but always more than the 12.5% of the codes themselves: each group of codes has a scale.",
        ),
    ],
)
def test_a_tab_of_what_codes_save_says_in_how_long_a_text(visit, part, words):
    assert said(visit(part=part)).count(words) == 1


@pytest.mark.slow
def test_a_link_fills_the_form_and_the_form_the_link(visit):
    app = visit(model="tiny-qwen3", designs="paged,int4", tokens="96", batch="4", dtype="bfloat16", prompt="Hello all")
    app.button(key="k_measure").click().run()
    (work,) = app.scheduler.jobs()
    assert work.spec == CachesSpec("tiny-qwen3", ("paged", "int4"), "auto", "Hello all", 96, 4, 3, "bfloat16")
    pills(app).set_value(["paged", "sinks"]).run()
    assert app.query_params["designs"] == "paged,sinks" and app.query_params["prompt"] == "Hello all"
    app.text_area(key="k_prompt").set_value("Two\nlines").run()
    assert "prompt" not in app.query_params  # a room could not follow it


def test_a_link_with_nonsense_becomes_what_there_is(visit):
    app = visit(model="x", designs="paged,x", tokens="77", batch="5", prompt="y" * 500)
    assert (pills(app).value, app.text_area(key="k_prompt").value) == (list(RACED), PROMPT)
    assert (app.selectbox(key="k_tokens").value, app.selectbox(key="k_batch").value) == (64, 4)


@pytest.mark.slow
def test_designs_are_offered_where_they_make_sense(visit, scheduler_without_worker):
    assert "In host memory" not in pills(visit()).options
    scheduler_without_worker.device["device"] = "cuda:0"
    assert "In host memory" in pills(visit()).options


@pytest.mark.slow
@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"designs": ""}, "choose at least one cache design"),
        ({"model": "tiny-mistral", "designs": "sinks"}, "window of 16 tokens of its own"),
        ({"model": "llama-3.1-405b"}, "this choice needs"),
    ],
)
def test_what_can_not_be_is_refused_in_a_sentence(visit, params, sentence):
    app = visit(**params)
    assert sentence in app.warning[0].value and app.scheduler.jobs() == []
    assert not any(button.key == "k_measure" for button in app.button)


def test_the_form_offers_what_the_server_allows(visit, scheduler_without_worker):
    scheduler_without_worker._given_limits = replace(Limits(), new_tokens=40, batch=2, repeats=1)
    app = visit(part="Bytes and time")
    assert app.selectbox(key="k_tokens").options[-1] == "32" and app.selectbox(key="k_batch").options[-1] == "2"
    assert "and no cache, each timed once" in said(app)


@pytest.mark.slow
def test_while_it_runs_it_can_be_stopped_and_says_so(visit):
    app = visit(model=MODEL)
    app.button(key="k_measure").click().run()
    (work,) = app.scheduler.jobs()
    app.button(key="k_stop").click().run()
    assert not app.exception and work.state == "stopped" and "was stopped" in app.warning[0].value
    assert not app.button(key="k_measure").disabled


@pytest.mark.slow
def test_how_far_it_is(records):
    assert progress({}) == (0.0, "Loading the model …")
    shares = [progress(record)[0] for record in records[:-1]]
    assert shares == sorted(shares) and shares[0] >= 0 and shares[-1] == 1.0
    assert progress(records[-2])[1] == "Now the quality: 70 of 70"


@pytest.mark.slow
def test_the_page_says_what_was_measured(measured, records):
    document = as_named_here(records[-1]["document"])
    app = measured("Room left empty")
    assert " leaves the most empty: " in app.header[0].value
    words = said(app)
    assert "“KV cache”" not in words and "“transformers' own”" in words
    for sentence in sentences(document):
        assert sentence in words
    for run in document["runs"]:
        assert run["slow"] in words
    table = app.dataframe[0].value
    assert list(table["Design"]) == [run["title"] for run in document["runs"]]
    assert list(table["Held at the end"]) == [human(run["cache_bytes"][-1]) for run in document["runs"]]
    waste = list(table["Wasted on average"])[list(table["Design"]).index("Preallocated")]
    assert waste in sentences(document)[-1], "sentence and table agree"
    app = measured("Quality lost")
    lost, words = app.dataframe[0].value["Mean KL"], said(app)
    assert list(lost)[:3] == ["0", "0", "0"] and lost.iloc[4].endswith("nats")
    assert "A story that the bundled models were not trained on" in words and "These weights are random" in words


@pytest.mark.slow
def test_the_memory_is_drawn_at_the_step_that_the_slider_says(measured, records):
    measured, document = measured("Layout"), records[-1]["document"]
    shared, last = document["shared_tokens"], document["shared_tokens"] + 16
    assert measured.select_slider(key="k_step").value == 8  # the middle: a tail is still reserved
    measured.select_slider(key="k_step").set_value(16).run()
    concat, prealloc, prefix, sinks, int8 = pictures(measured)  # transformers' own can't be asked
    assert f"One buffer of {last} slots for each sequence, {last} of them filled." in concat
    assert concat.count("kvp-s kvp-new") == last and concat.count("kvp-s kvp-none") == 0
    assert prealloc.count("kvp-s kvp-new") == 1 and prealloc.count("kvp-s kvp-old") == last - 1
    assert prealloc.count("kvp-s kvp-none") == 1
    assert prefix.count("× 2") == shared // 16 and "Sequence 2" in prefix and "Free list" in prefix
    assert sinks.count("kvp-n kvp-sink") == 4 and f">{last - 1}<" in sinks
    assert f"{last - 64} tokens were let go" in sinks
    assert f"1 group of 32 tokens as 8-bit codes; the newest {last - 32} tokens are still as they came" in int8
    (strips,) = (html.proto.body for html in measured.get("html") if 'class="kvp kvp-strips" ' in html.proto.body)
    written = [row.split(" token")[0].split()[-1] for row in strips.split("writes ")[1::2]]
    assert written == [str(last), "1", "1", "1", str(last - 32)] and strips.count("kvp-s kvp-sink") == shared // 16 * 16
    measured.select_slider(key="k_step").set_value(1).run()
    assert not measured.exception
    first = pictures(measured)[1]
    assert first.count("kvp-s kvp-new") == shared + 1 and first.count("kvp-s kvp-none") == 16
    assert pictures(measured)[3].count("kvp-n kvp-none") == 64 - (shared + 1)


@pytest.mark.slow
def test_the_curves_are_those_of_the_document(measured, records):
    document = as_named_here(records[-1]["document"])
    held, (quality, kl), (both, moved, times, moved_left, moved_right) = (
        charts(measured(part)) for part in ("Room left empty", "Quality lost", "Bytes and time")
    )
    titles = [run["title"] for run in document["runs"]]
    held, written = (
        sorted(
            title
            for figure in pair
            for words in figure["layout"]["annotations"]
            if words["text"].startswith("<b>")
            for title in words["text"].split("</b>")[0].removeprefix("<b>").split(" = <br>")
        )
        for pair in (held, (moved_left, moved_right))
    )
    assert held == sorted(titles[1:]), "designs with the same bytes share a panel"
    assert written == sorted(run["title"] for run in document["runs"] if run["books"])
    assert titles[:0:-1] == moved["data"][0]["y"] == times["data"][0]["y"]
    assert [data["x"] for data in both["data"]] == [data["x"] for data in (*moved["data"], *times["data"])]
    written = dict(zip(moved["data"][0]["y"], moved["data"][0]["x"], strict=True))
    assert written["transformers' own"] == written["Concatenated"] > written["Preallocated"] > 0
    assert [line["name"] for line in kl["data"]] == ["Window with sinks", "8 bits"]
    notes = [note["text"].split("<br>")[0] for note in quality["layout"]["annotations"]]
    assert sorted(notes) == ["5 exact caches", "8 bits", "Window with sinks"]
    assert "<b>Static (transformers)</b>: " in quality["data"][0]["hovertemplate"]
    lost = [sum(run["quality"]["kl"]) / 70 for run in document["runs"] if run["mode"] in ("sinks", "int8")]
    assert [point["y"][0] for point in quality["data"][1:]] == pytest.approx(lost)
    assert [line["y"][-1] for line in kl["data"]] == pytest.approx(lost), "the mean so far ends at the mean"
    assert quality["layout"]["yaxis"]["ticktext"][0] == "no drift"


def test_a_step_is_told_with_what_is_not_known_of_it(visit):
    app = visit(part="Bytes and time")
    assert app.header[0].value == (
        "“Concatenated” writes 103 times the bytes of “Preallocated”; its median step is 10% longer, and the quartiles "
        "overlap"
    )
    assert (
        "**Compare each bar with its step.** The bars leave out what attention then reads: in every design mostly the "
        "whole cache. **Median steps with grey take 0.2 ms to 0.3 ms longer** than “Preallocated”; how much of that is "
        "gathering was not measured."
    ) in [words.value for words in app.markdown], "no more than that stands below the figure"
    assert (
        "\n\n“Concatenated” writes 816.0 KiB more than “Preallocated”; its step is about 0.06 ms longer. "
        "“transformers' own” takes 0.64 ms: its bytes were not counted; if it writes as many, they alone do not "
        "explain the longer step. Without a cache, which is not drawn, a step takes 3.8 ms."
    ) in said(app)


@pytest.mark.slow
def test_somebody_elses_measurement_is_shown_at_once_and_can_be_taken_again(measured, visit):
    measured()
    other = visit(model=MODEL, tokens="16", prompt=SPEC.prompt, designs=",".join(DESIGNS), part="Layout")
    assert len(pictures(other)) == 5 and other.button(key="k_measure").label == "Measure again"
    other.button(key="k_measure").click().run()
    assert [work.active for work in other.scheduler.jobs()] == [False, True]


def test_a_budget_and_a_pyramid_can_be_chosen_behind_the_designs(visit):
    app = visit(kept="25%", pyramid="True")
    app.button(key="k_measure").click().run()
    assert (app.scheduler.jobs()[-1].spec.cache_budget, app.scheduler.jobs()[-1].spec.pyramid) == ("25%", True)
    app = visit(kept="25%", designs="paged")
    app.button(key="k_measure").click().run()
    assert app.scheduler.jobs()[-1].spec.cache_budget is None, "no design here has a budget"


def test_the_recording_is_what_the_form_asks_for_at_first(visit):
    app = visit()
    app.button(key="k_measure").click().run()
    (work,) = app.scheduler.jobs()
    assert type(work.spec).from_dict(recording("caches")["document"]["spec"]) == work.spec
    assert "recording** of mini-gpt2" not in said(app)


def test_files_of_ones_own_that_are_left_out_are_named_with_the_reason(visit, monkeypatch):
    monkeypatch.setattr("kvviz.ui.shared.own_designs.LEFT_OUT", {"half.py": "half.py is no Python yet: line 1"})
    monkeypatch.setattr("kvviz.ui.caches.form.unloadable", lambda scheduler: {"paged": "paged.py can't be loaded"})
    app = visit()
    assert "half.py is no Python yet: line 1" in app.warning[0].value
    assert "Paged" not in [option.content for option in pills(app).proto.options]


def test_what_a_lossy_cache_recalls_is_seen_in_a_recording_and_asked_anew(visit):
    app, found = visit(seeds="1", part="Facts recalled"), recording("recall")["document"]
    assert claim(found) in [header.value for header in app.header] and "recording** of mini-recall" in said(app)
    answers = app.dataframe[-1].value
    asked = app.selectbox(key="kq_question").value
    assert list(answers["25%"])[1] == answer_of(found, "sinks", 25, asked)
    other = (asked + 1) % found["spec"]["facts"]
    app.selectbox(key="kq_question").set_value(other).run()
    assert list(app.dataframe[-1].value["25%"])[1] == answer_of(found, "sinks", 25, other)
    app.button(key="kq_measure").click().run()
    assert app.scheduler.jobs()[-1].spec == RecallSpec(seeds=1)


def answer_of(found, mode, percent, asked):
    row = next(row for row in found["rows"] if (row["mode"], row["percent"]) == (mode, percent))
    return f"{row['said'][asked]} {'✓' if row['right'][asked] else '✗'}"


def test_what_is_forgotten_is_shown_of_a_recording_and_read_when_asked_for(visit):
    app = visit(part="Tokens evicted")
    assert any("loses least with equally many tokens kept" in expander.label for expander in app.expander)
    first = recording("forgetting")["document"]["runs"][1]
    assert app.session_state["g_design"] == first["mode"] == "h2o", "the first whose heads differ"
    assert any(header.value.startswith(f"“{first['title']}” keeps 25%") for header in app.header)
    assert f"{first['title']}: most attended and newest" in said(app)
    app.button(key="g_measure").click().run()
    (work,) = app.scheduler.jobs()
    assert type(work.spec).from_dict(recording("forgetting")["document"]["spec"]) == work.spec


@pytest.mark.parametrize(("former", "part"), FORMER.items())
def test_a_link_with_a_tabs_former_name_opens_that_tab(visit, former, part):
    assert TEXTS["caches"]["question"][part] in said(visit(part=former))
