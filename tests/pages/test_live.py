"""The live page as Streamlit runs it, without a browser: the form, Run, Stop, bad input."""

import json

import pytest
from streamlit.testing.v1 import AppTest

from kvviz.base.settings import Limits, Settings
from kvviz.ui.folders import MAIN, PAGES
from kvviz.ui.live.form import PROMPTS
from tests.server.test_several_workers import Silent


@pytest.fixture
def page(open_page):
    return open_page("live")


def told(app):
    """What the live component is given."""
    given = [json.loads(component.proto.json) for component in app.get("bidi_component")]
    return next(data for data in given if "comparison" in data)


def watched(app):
    """Which comparison the component is told to show."""
    return told(app)["comparison"]


@pytest.mark.slow
def test_the_default_is_ready_to_run(page):
    assert page.selectbox(key="model").value == "mini-gpt2"
    assert not page.button(key="run").disabled
    assert page.button(key="stop").disabled
    assert "A run takes about" in told(page)["takes"]
    assert watched(page) is None


@pytest.mark.slow
def test_run_submits_what_the_form_says(page):
    page.selectbox(key="model").select("tiny-mistral")
    page.text_area(key="prompt").set_value("A prompt of mine")
    page.selectbox(key="new_tokens").select(64)
    page.number_input(key="repeats").set_value(2)
    page.button(key="run").click().run()
    assert not page.exception
    work = page.scheduler.shown()
    assert (work.spec.model, work.spec.prompt, work.spec.new_tokens) == ("tiny-mistral", "A prompt of mine", 64)
    assert (work.spec.modes, work.spec.repeats) == (("uncached", "cached"), 2)
    assert page.query_params["comparison"] in (work.id, [work.id])
    assert watched(page) == work.id


@pytest.mark.slow
def test_the_page_is_drawn_once_for_a_run(page, monkeypatch):
    monkeypatch.setattr("streamlit.rerun", lambda *_, **__: pytest.fail("the page was to be drawn a second time"))
    page.button(key="run").click().run()
    assert not page.exception and watched(page) == page.scheduler.shown().id
    assert not page.button(key="stop").disabled


@pytest.mark.slow
def test_an_endpoint_is_a_lane_and_its_key_no_part_of_the_run(page, monkeypatch):
    page.text_input(key="endpoint").set_value("http://localhost:8000").run()
    page.text_input(key="endpoint_model").set_value("m")
    page.text_input(key="endpoint_key").set_value("sk-mine")
    page.button(key="run").click().run()
    assert not page.exception
    work = page.scheduler.shown()
    assert work.spec.modes == ("uncached", "cached", "endpoint") and work.key == "sk-mine"
    assert (work.spec.endpoint, work.spec.endpoint_model) == ("http://localhost:8000", "m")
    seen = [work, work.description(), work.log_fields(), page.query_params, told(page), page.session_state["form_live"]]
    assert "sk-mine" not in repr(seen)
    page.button(key="stop").click().run()
    assert work.key is None, "it is not kept beyond the run"
    page.switch_page(str(PAGES / "memory.py")).run()
    page.switch_page(str(PAGES / "live.py")).run()
    assert page.text_input(key="endpoint").value == "http://localhost:8000"
    assert page.text_input(key="endpoint_key").value == "", "nor beyond the page"


@pytest.mark.slow
def test_an_endpoint_comes_from_no_link_and_a_known_one_from_the_settings(open_page, monkeypatch):
    monkeypatch.setattr(
        "kvviz.ui.shared.endpoint_fields.settings", lambda: Settings(endpoints=("http://10.0.0.5:8000/v1",))
    )
    page = open_page("live", endpoint="http://evil.example.org", endpoint_key="x")
    assert page.text_input(key="endpoint").value == ""
    (known,) = [group for group in page.get("button_group") if group.key == "known_endpoint"]
    known.set_value("http://10.0.0.5:8000/v1").run()
    assert page.text_input(key="endpoint").value == "http://10.0.0.5:8000/v1" and not page.button(key="run").disabled
    page.text_input(key="endpoint").set_value("http://me:sk-mine@x").run()
    assert page.button(key="run").disabled and any("holds no name" in said.value for said in page.warning)


@pytest.mark.slow
def test_a_prompt_is_a_text_or_so_many_tokens_of_a_book(page):
    lengths = page.get("button_group")
    (length,) = [group for group in lengths if group.key == "prompt_tokens"]
    assert list(length.options) == ["the text", "16", "64", "256"], "mini-gpt2 has 1,024 positions"
    length.set_value(256).run()
    page.button(key="run").click().run()
    spec = page.scheduler.shown().spec
    assert (spec.prompt, spec.prompt_tokens, spec.filler) == (None, 256, "book")
    page.text_area(key="prompt").set_value("Once").run()
    page.button(key="run").click().run()
    work = page.scheduler.jobs()[-1]
    assert (work.spec.prompt, work.spec.prompt_tokens, work.spec.filler) == ("Once", None, "random")


@pytest.mark.slow
def test_stop_stops_ones_own(page):
    page.button(key="run").click().run()
    own = page.scheduler.shown()
    assert not page.button(key="stop").disabled
    page.button(key="stop").click().run()
    assert own.state == "stopped"


@pytest.mark.slow
def test_another_browser_may_watch_but_not_stop_and_ones_own_may_after_a_reload(page, monkeypatch):
    page.button(key="run").click().run()
    own = page.scheduler.shown()
    assert own.made_by and own.made_by not in json.dumps(own.records)

    def visit():
        app = AppTest.from_file(str(MAIN), default_timeout=20).run()
        app.query_params["comparison"] = own.id
        return app.switch_page(str(PAGES / "live.py")).run()

    assert visit().button(key="stop").disabled, "a session without the cookie is another browser"
    name = page.session_state.owner
    monkeypatch.setattr("kvviz.ui.shared.session.browser_of", lambda cookies: cookies["kvviz_browser"])
    monkeypatch.setattr("streamlit.runtime.context.ContextProxy.cookies", {"kvviz_browser": name})
    again = visit()
    again.button(key="stop").click().run()
    assert not again.exception and own.state == "stopped"


@pytest.mark.slow
def test_what_a_server_does_not_allow_is_said_before_run(page):
    page.scheduler._given_limits = Limits(new_tokens=16)
    page.selectbox(key="new_tokens").select(64).run()
    assert page.button(key="run").disabled
    assert "64 new tokens; this server allows at most 16" in page.warning[0].value


def test_a_link_shows_that_comparison(scheduler_without_worker):
    app = AppTest.from_file(str(MAIN), default_timeout=20).run()
    app.query_params["comparison"] = "abc"
    app.switch_page(str(PAGES / "live.py")).run()
    assert watched(app) == "abc"
    assert app.button(key="stop").disabled, "only who started a comparison can stop it"


def pills(app, key):
    return next(group for group in app.get("button_group") if group.key == key)


@pytest.mark.slow
@pytest.mark.parametrize("empty", ["prompt", "modes"])
def test_an_impossible_choice_is_said_and_can_not_be_run(page, empty):
    if empty == "prompt":
        page.text_area(key="prompt").set_value("").run()
    else:
        pills(page, "modes").set_value([]).run()
    assert not page.exception
    assert page.button(key="run").disabled
    assert len(page.warning) == 1


@pytest.mark.slow
def test_an_own_model_that_is_not_there(page):
    page.selectbox(key="model").select_index(len(page.selectbox(key="model").options) - 1).run()
    page.text_input(key="own_model").set_value("/nowhere/at/all").run()
    assert not page.exception
    assert "neither a catalog id" in page.warning[0].value


@pytest.mark.slow
def test_a_mode_that_the_model_can_not_do_is_said_before_it_is_run(page):
    pills(page, "modes").set_value(["cached", "scratch"]).run()
    assert not page.warning and not page.button(key="run").disabled
    page.selectbox(key="model").select("tiny-mistral").run()
    assert not page.exception
    assert "layer 0 attends within a sliding window of 16 tokens" in page.warning[0].value
    assert page.button(key="run").disabled


def test_what_can_not_fit_is_said_before_it_is_run(page):
    page.selectbox(key="model").select("llama-3.1-8b").run()
    assert page.button(key="run").disabled
    assert "needs 30.0 GiB" in page.warning[0].value
    assert "16.0 GiB" in page.warning[0].value


@pytest.mark.slow
def test_sampling_and_stopping_reach_the_work(page):
    page.number_input(key="temperature").set_value(0.8).run()
    page.number_input(key="top_k").set_value(40)
    page.number_input(key="seed").set_value(7)
    page.number_input(key="batch").set_value(3)
    page.text_input(key="stop_text").set_value("The end")
    assert "Off: decoding goes on past the model's end token" in page.checkbox(key="stop_at_eos").help
    page.checkbox(key="stop_at_eos").check()
    page.selectbox(key="attn").select("eager")
    page.selectbox(key="dtype").select("bfloat16")
    page.button(key="run").click().run()
    work = page.scheduler.shown().spec
    assert (work.sampling.temperature, work.sampling.top_k, work.sampling.top_p, work.sampling.seed) == (
        0.8,
        40,
        None,
        7,
    )
    assert (work.batch, work.stop_text, work.stop_at_eos, work.attn, work.dtype) == (
        3,
        "The end",
        True,
        "eager",
        "bfloat16",
    )


@pytest.mark.slow
def test_presets_fill_the_prompt(page):
    pills(page, "preset").set_value("Code").run()
    assert page.text_area(key="prompt").value == PROMPTS["Code"]


CARDS = {
    "device": "cuda:0",
    "capability": "9.0",
    "driver": "580.159.04",
    "cuda": "13.0",
    "devices": [
        {"device": name, "device_name": title, "total_bytes": 80 * 2**30}
        for name, title in (("cuda:0", "A card"), ("cuda:1", "Another card"), ("cpu", "A processor"))
    ],
}


@pytest.mark.slow
def test_one_of_several_devices_can_be_chosen_and_is_described(page):
    assert all(box.key != "device" for box in page.selectbox), "one device is no choice"
    page.scheduler.device.update(CARDS)
    page.run()
    assert any("driver 580.159.04, CUDA 13.0" in said.value and "selftest" in said.value for said in page.caption)
    page.selectbox(key="device").select("cuda:1").run()
    page.button(key="run").click().run()
    assert page.scheduler.jobs()[-1].spec.device == "cuda:1"


@pytest.mark.slow
def test_each_worker_is_offered_by_name_and_the_queue_says_who_waits_for_it(page):
    assert not any(button.key == "queue_again" for button in page.button), "nobody waits"
    here = page.scheduler.device
    page.scheduler.employ(*(Silent(name) for name in ("cpu:0", "cpu:1")))
    for worker in page.scheduler.workers:
        worker.received("-", "hello", json.dumps(here | {"device": "cpu", "threads": 4, "free_bytes": 3 * 2**30}))
    page.run()
    (box,) = [box for box in page.selectbox if box.key == "device"]
    assert box.options[1:] == [f"{name}: a test's device, 3.0 GiB of 16.0 GiB free" for name in ("cpu:0", "cpu:1")]
    box.select("cpu:1").run()
    for _ in range(2):
        page.button(key="run").click().run()
    (table,) = [frame.value for frame in page.dataframe if "whose" in frame.value]
    assert list(table["place"]) == ["on cpu:1", "1st in line"] and set(table["whose"]) == {"yours"}
    assert list(table["what"]) == [table["what"][0]] * 2 and "mini-gpt2" in table["what"][0]
    assert table["wait"][0] == "none" and table["wait"][1].startswith(("about", "soon"))
    page.button(key="queue_again").click().run()
    assert not page.exception


@pytest.mark.slow
@pytest.mark.parametrize(("device", "dtype"), [({}, "float32"), (CARDS, "bfloat16")])
def test_a_large_model_starts_in_the_precision_that_the_device_is_made_for(page, device, dtype):
    page.scheduler.device.update(device)
    page.selectbox(key="model").select("llama-3.2-1b").run()
    page.button(key="run").click().run()
    assert page.scheduler.jobs()[-1].spec.dtype == dtype


@pytest.mark.slow
def test_a_split_is_offered_for_the_precision_that_auto_stands_for(page):
    page.scheduler.device.update(free_bytes=4 * 2**30)  # 1.2e9 parameters fit with 2 bytes each, and not with 4
    page.selectbox(key="model").select("llama-3.2-1b").run()
    assert page.selectbox(key="device").options[1:] == [
        "split: over all devices and the disk, for a model larger than one"
    ]
    page.scheduler.device.update(capability="9.0")
    page.run()
    assert all(box.key != "device" for box in page.selectbox) and not page.exception


@pytest.mark.slow
def test_a_card_that_is_not_used_is_said_on_the_page(page):
    assert not any("too old" in said.value for said in page.info)
    page.scheduler.device.update(why="This machine has a card, and its driver is too old.")
    page.run()
    assert any("too old" in said.value for said in page.info)


@pytest.mark.slow
def test_a_gpus_recording_opens_with_a_press(page):
    next(button for button in page.button if button.label == "Open a GPU's recording").click().run()
    (job,) = page.scheduler.jobs()
    assert job.state == "done" and watched(page) == job.id
    started = json.loads(job.records[0])
    assert started["environment"]["device"] == "cuda" and [mode["name"] for mode in started["modes"]][-1] == "compiled"


@pytest.mark.slow
def test_what_a_browser_can_not_decode_is_said_before_it_is_asked_to(open_page):
    page = open_page("live", on="browser", modes="uncached,cached,compiled")
    assert "leave “Compiled” out" in page.warning[0].value and page.button(key="browser_start").disabled
    pills(page, "modes").set_value(["uncached", "cached"]).run()
    page.button(key="browser_start").click().run()
    order = told(page)["browser"]
    assert (order["spec"]["device"], order["spec"]["dtype"], order["model"]["id"]) == (
        "browser",
        "float32",
        "mini-gpt2",
    )
    assert not page.scheduler.jobs(), "the server measures nothing"
    page.button(key="browser_stop").click().run()
    assert told(page)["browser"] is None
    page.selectbox(key="model").select("tiny-gpt2").run()
    assert not page.exception
    assert "models that come with kvviz" in page.warning[0].value
