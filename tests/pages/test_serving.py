"""The serving page as Streamlit runs it, without a browser: forms, looks, what they show, links that open a run."""

import json
import re

import pytest

from kvviz.charts import claims
from kvviz.charts.serving import PARTS as PARTS_OF_MEMORY
from kvviz.experiments.batching import words as batching_words
from kvviz.experiments.batching.run import run as served_together
from kvviz.experiments.concurrency.run import run as concurrency
from kvviz.experiments.concurrency.spec import ConcurrencySpec
from kvviz.experiments.concurrency.words import claim as concurrency_claim
from kvviz.experiments.concurrency.words import claim_of_recording
from kvviz.experiments.load.words import claim, steps_claim, within
from kvviz.experiments.serving.arrivals import compare_policies
from kvviz.experiments.serving.run import arrivals, conversation, sharing
from kvviz.experiments.serving.spec import ASKS, ArrivalsSpec, SharingSpec, TalkSpec
from kvviz.experiments.serving.words import turns_of
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.serving.batching import batching_spec
from kvviz.ui.serving.conversations import needed
from kvviz.ui.serving.form import LOADS, PARTS, progress
from kvviz.ui.serving.load import load_spec, room
from kvviz.ui.serving.to_vllm import ROWS
from kvviz.ui.shared.experiment import recording
from kvviz.ui.shared.model_choice import small_models
from kvviz.ui.shared.plain import plain
from tests.openai_server import serving
from tests.pages.conftest import answered, charts, said

SYSTEM = "You are a kind teller of short stories about animals."


@pytest.fixture
def visit(open_page):
    """`visit("live", modes="paged")` is that page with that in its address."""
    return lambda page="serving", **link: open_page(page, **link)


def maps(app):
    """The drawings of a memory, slot by slot."""
    return [html.proto.body for html in app.get("html") if 'class="kvm"' in html.proto.body]


def prompts(app):
    """The drawings of prompts that were served cold and warm."""
    return [html.proto.body for html in app.get("html") if 'class="kvf"' in html.proto.body]


def view(app):
    """What the drawing of a serving run is given, and the title over it."""
    given = (json.loads(part.proto.json) for part in app.get("bidi_component") if part.proto.json)
    title = next(head.value for head in app.header if head.proto.anchor == "continuous-batching")
    return next(data for data in given if "job" in data), title


def measured(app, key, records):
    """The document of a section's look."""
    return answered(app, key, records).document


def test_nothing_is_measured_before_it_is_asked_for_and_a_recording_is_seen(visit):
    """On each tab, which draws its own charts and none of the others'."""
    assert visit().header[0].value.startswith("Continuous batching: the first token after")
    assert "vLLM" in visit(part="To vLLM").header[0].value
    charted = {"Load": 6, "Fragmentation": 3, "Preemption": 1, "A real server": 6}
    words = {"Fragmentation": "with the settings that the page opens with, the same on every machine", "To vLLM": ""}
    words["A real server"] = "This is a **recording** of llama.cpp's own server"
    for part in PARTS:
        app = visit(part=part)
        assert app.scheduler.jobs() == [] and len(charts(app)) == charted.get(part, 0)
        assert len(maps(app)) == (4 if part == "Fragmentation" else 0)
        assert len(prompts(app)) == (part in ("Prefix sharing", "A conversation"))
        assert words.get(part, "This is a **recording** of mini-gpt2") in said(app)


def test_what_is_seen_first_is_what_the_forms_ask_for(visit):
    kept = {
        "Continuous batching": ("vb", "batching"),
        "Load": ("vl", "load"),
        "Fragmentation": ("vf", "arrivals"),
        "Preemption": ("vq", "preemption"),
        "Prefix sharing": ("vs", "sharing"),
        "Eviction": ("vp", "prefixes"),
        "A conversation": ("vt", "conversation"),
    }
    for part, (key, name) in kept.items():
        app = visit(part=part)
        before = len(app.scheduler.jobs())
        app.button(key=f"{key}_measure").click().run()
        work = app.scheduler.jobs()[before]
        assert recording(name)["document"]["spec"] == json.loads(json.dumps(work.spec.to_dict()))


def test_the_arrivals_that_are_seen_first_are_what_the_allocators_do_today():
    kept = recording("arrivals")["document"]
    assert kept["ways"] == json.loads(json.dumps(compare_policies(ArrivalsSpec())["ways"]))


def test_a_link_fills_the_forms_and_the_forms_the_link(visit):
    link = {"requests": "40", "rate": "2.0", "slots": "512", "longest": "128", "seed": "3"}
    app = visit(part="Fragmentation", **link, asks="3", drop="9", model="tiny-llama")
    app.button(key="vf_measure").click().run()
    (work,) = app.scheduler.jobs()
    assert work.spec == ArrivalsSpec(40, 2.0, 512, 128, 3)
    app.slider(key="v_requests").set_value(60).run()
    assert app.query_params["requests"] in ("60", ["60"])
    app.session_state["v_part"] = "Prefix sharing"  # as a click on that tab
    app.run()
    assert (app.slider(key="v_asks").value, app.selectbox(key="v_model").value) == (3, "tiny-llama")
    app.session_state["v_part"] = "A conversation"
    assert app.run().slider(key="v_drop").value == 9 and app.query_params["requests"] in ("60", ["60"])


def test_a_part_is_a_tab_that_a_link_can_open(visit):
    app = visit(part="A conversation")
    assert app.session_state["v_part"] == "A conversation" and app.query_params["part"] in (
        ["A conversation"],
        "A conversation",
    )
    assert visit(part="No such").session_state["v_part"] == PARTS[0]
    parts = {part for row in ROWS for part in row.get("parts", {}).values()}
    assert parts and parts <= set(PARTS)


def test_what_was_set_in_a_tab_stands_while_another_is_open(visit):
    app = visit(part="Fragmentation")

    def open_tab(part):
        app.session_state["v_part"] = part
        app.run().run()

    open_tab("Load")
    app.select_slider(key="v_ttft").set_value(10).run()
    open_tab("Fragmentation")
    open_tab("Load")
    assert app.select_slider(key="v_ttft").value == 10 and app.query_params["ttft"] in ("10", ["10"])


def test_a_link_with_nonsense_becomes_the_usual(visit):
    nonsense = {"requests": "9000", "rate": "7", "slots": "x", "model": "no-such", "asks": "99"}
    app = visit(part="Fragmentation", **nonsense)
    assert app.slider(key="v_requests").value == 200
    assert app.select_slider(key="v_rate").value == 1.0 and app.select_slider(key="v_slots").value == 2048
    assert visit(part="Prefix sharing", **nonsense).slider(key="v_asks").value == 8


def test_a_memory_too_small_is_said_and_nothing_else_breaks(visit):
    app = visit(part="Fragmentation", slots="512", longest="512")
    assert "take at least 528" in app.warning[0].value
    assert not any(button.key == "vf_measure" for button in app.button)
    app = visit(part="Prefix sharing", slots="512", longest="512")
    assert not app.warning and any(button.key == "vs_measure" for button in app.button)


@pytest.mark.slow
def test_four_ways_side_by_side_and_the_memory_at_a_moment(visit, bench):
    app = visit(part="Fragmentation", requests="40", slots="512", longest="128")
    document = measured(app, "vf", lambda spec: arrivals(spec, bench()))
    shares, *waste = charts(app)
    assert [sum(row) for row in zip(*(bar["x"] for bar in shares["data"]), strict=True)] == pytest.approx([100] * 5)
    assert [len(figure["data"]) for figure in waste] == [2 * len(PARTS_OF_MEMORY)] * 2
    words = said(app)
    for sentence in document["sentences"]:
        assert sentence in words
    assert any("512" in one.value and "= 4" in one.value for one in app.latex), "512 slots for 128 each"
    slider = next(slider for slider in app.slider if slider.label == "Time step")
    before = maps(app)[0]
    slider.set_value(slider.min).run()
    assert not app.exception
    assert maps(app)[0] != before
    slider.set_value(slider.max).run()
    assert "over since time step" in said(app)


@pytest.mark.slow
def test_requests_that_are_decoded_together(visit, bench):
    app = visit(part="Continuous batching", model="tiny-qwen3", load="160", memory="256")
    assert view(app)[0]["job"] is None
    app.button(key="vb_measure").click().run()
    (work,) = app.scheduler.jobs()
    assert work.spec == batching_spec("tiny-qwen3", 160, 256)
    assert view(app)[0]["job"] == work.id and view(app)[1].startswith("As it runs")
    for record in served_together(work.spec, bench()):
        app.scheduler.record(work.id, record)
    app.run()
    assert not app.exception
    assert view(app)[0]["job"] == work.id and view(app)[1] == batching_words.claim(work.document["rows"])
    words = said(app)
    for sentence in work.document["sentences"]:
        assert sentence in words
    table = next(table.value for table in app.dataframe if "Tokens/s" in table.value)
    assert list(table["Same tokens"]) == ["yes"] * 3 and sum(table["Cache hits"]) > 0


def test_a_row_without_a_decode_step_is_explained_where_there_is_one():
    assert all(1 in batching_spec("mini-gpt2", load).answers for load in LOADS)
    explained = "A prefill also writes the first token, so a row without blue is an answer of one token."
    assert explained in TEXTS["serving"]["batching_run"]


def test_a_flag_that_is_no_switch_says_what_it_is_for(visit):
    drawn = [html.proto.body for html in visit(part="To vLLM").get("html")]
    assert any("to provoke it:<br><code>--num-gpu-blocks-override 32</code>" in body for body in drawn)


@pytest.mark.parametrize(
    ("places", "said"),
    [(16, "At most 16 run at once here, 6 on *Continuous batching*."), (6, "At most 6 run at once here.")],
)
def test_how_many_run_at_once_is_held_against_the_tab_whose_requests_wait_sooner(places, said):
    assert room(places) == said


def test_the_roofline_s_recording_gains_more_together_with_a_larger_model_than_the_server_s():
    ours, theirs = recording("roofline")["document"], recording("concurrency")["document"]
    row = {p["batch"]: p["tokens_per_s"] for p in ours["points"] if p["phase"] == "decode" and p["tokens"] == 512}
    alone, *more = (each["tokens_per_s"] for each in theirs["rows"])
    assert row[8] / row[1] > max(more) / alone, "with as many at once, at the longest context"
    assert theirs["rows"][-1]["concurrency"] == 8 and "mini-gpt2" in theirs["title"]
    assert ours["points"][0]["weight_bytes"] > 50e6, "GPT-2 small, not mini-gpt2"
    assert "*Roofline*'s recording gains more, with a larger model" in TEXTS["serving"]["real_server_waits"]
    assert theirs["engine"]["name"] == "llamacpp", "so no PyTorch, in which *Prefix sharing* runs"


def test_the_goodput_is_read_off_at_the_limits_of_the_reader(visit):
    found = recording("load")["document"]
    app = visit(part="Load", ttft="5000", itl="200", places="8", policy="chunked")
    titles = [head.value for head in app.header]
    assert claim(found) in titles and f"**{steps_claim(found)}**" in [text.value for text in app.markdown]
    app.select_slider(key="v_ttft").set_value(10).run()
    assert any(within(found, 0.01, 0.2) in text.value for text in app.markdown)
    assert app.query_params["ttft"] in ("10", ["10"])
    drawn = [shape for figure in charts(app) for shape in figure["layout"]["shapes"]]
    assert {10, 200} < {shape["y0"] for shape in drawn if shape["type"] == "line"}
    app.button(key="vl_measure").click().run()
    (work,) = app.scheduler.jobs()
    assert work.spec == load_spec("mini-gpt2", "chunked", 8)


@pytest.mark.slow
def test_a_shared_prompt_cold_and_warm(visit, bench):
    app = visit(part="Prefix sharing", model="tiny-llama", asks="3")
    app.text_area(key="v_system").set_value(SYSTEM).run()
    document = measured(app, "vs", lambda spec: sharing(spec, bench()))
    (work,) = app.scheduler.jobs()
    assert work.spec == SharingSpec("tiny-llama", SYSTEM, ASKS[:3])
    drawn = prompts(app)[0]
    for row in document["requests"]:
        assert f"{row['warm']['computed_tokens']} computed</b>" in drawn
    words = said(app)
    for sentence in document["sentences"]:
        assert sentence in words
    assert "got the same tokens" in words
    alike = document["alike_tokens"]
    assert any(f"= {alike // 16 * 16}" in one.value for one in app.latex)
    table = next(table.value for table in app.dataframe if "Same tokens" in table.value)
    assert list(table["Same tokens"]) == ["yes"] * 3


def test_the_memory_of_both_orders_after_each_request_and_what_the_next_one_costs(visit):
    """Of the recording: it opens where the next request has to compute again what it had computed before."""
    app, kept = visit(part="Eviction"), recording("prefixes")["document"]
    assert kept["rows"][0]["recomputed_tokens"] > kept["rows"][1]["recomputed_tokens"] and kept["identical"]
    share = "the memory has 14 of the 22 blocks that all would take; the same tokens under both orders."
    assert share in said(app) and "65%: 14 of 22 whole blocks" in [text.value for text in app.markdown]
    turns = [name for _, name in turns_of(kept["rows"][0]["requests"])]
    seen = app.select_slider(key="v_after").value
    for number, name in ((turns.index(seen), seen), (5, "A’s turn 3"), (6, "B’s turn 3")):
        app.select_slider(key="v_after").set_value(name).run()
        drawn = [one.proto.body for one in app.get("html")]
        trees = [body for body in drawn if 'class="kvt"' in body]
        for row, tree in zip(kept["rows"], trees, strict=True):
            one = row["requests"][number]
            for state, figure in {"hit": "hit_tokens", "again": "recomputed_tokens"}.items():
                assert tree.count(f'class="kvt-{state}"') * kept["block"] == one[figure]
            assert tree.count('class="kvt-evicted"') == one["evicted_blocks"]
        follows = [body for body in drawn if "then costs" in body]
        turns_drawn = [body for body in drawn if body.startswith('<table class="kvt-turns">')]
        for row, body in zip(kept["rows"], turns_drawn, strict=True):
            counts = [one["recomputed_tokens"] for one in row["requests"]]
            assert [int(count) for count in re.findall(r"<td[^>]*>(\d+)<", body)] == counts
            assert f"<b>{sum(counts)}</b>" in body and sum(counts) == row["recomputed_tokens"]
        title = next(head.value for head in app.header if head.proto.anchor == "prefix-tree")
        assert title == claims.of_evictions(kept["rows"])
        assert all(str(row["recomputed_tokens"]) in title for row in kept["rows"])
        if number == 6:
            assert not follows
            continue
        after = [row["requests"][number + 1]["recomputed_tokens"] for row in kept["rows"]]
        assert after[0] > after[1] and len(follows) == 2 and all(turns[number + 1] in body for body in follows)
        for again, body in zip(after, follows, strict=True):
            assert f"{again} <b>again</b>" in body


def test_a_real_server_is_asked_with_more_and_more_requests_at_once(visit, bench):
    app = visit(part="A real server", endpoint="http://evil.example.org", streams="4", pieces="16")
    assert app.text_input(key="v_endpoint").value == "", "no link says which server gets a key"
    assert not any(button.key == "ve_measure" for button in app.button)
    kept = recording("concurrency")["document"]
    where = plain(kept["environment"]["device_name"])
    assert (
        f"recording** of {kept['title']} ({where}), made on" in said(app)
        and "llama.cpp's own server (b" in kept["title"]
    )
    assert claim_of_recording(kept) in [head.value for head in app.header]
    drawn = {part.proto.id for part in app.get("bidi_component")}
    assert all(any(key in one for one in drawn) for key in ("ve_tokens", "ve_ttft_s", "ve_itl_s", "ve_use", "ve_hits"))
    with serving(pieces=tuple("abcd")) as does:
        app.text_input(key="v_endpoint").set_value(does.url).run()
        app.text_input(key="v_endpoint_key").set_value("sk-mine")
        document = measured(app, "ve", lambda spec: concurrency(spec, bench()))
    (work,) = app.scheduler.jobs()
    assert work.spec == ConcurrencySpec(does.url, concurrency=(1, 2, 4), new_tokens=16)
    assert "sk-mine" not in repr([work, work.description(), work.log_fields(), dict(app.query_params)])
    assert concurrency_claim(document) in [head.value for head in app.header]
    table = next(table.value for table in app.dataframe if "At once" in table.value)
    assert list(table["At once"]) == [1, 2, 4] and list(table["Answered"]) == [3, 6, 12]


@pytest.mark.slow
def test_a_conversation_kept_edited_and_cut_off(visit, bench):
    app = visit(part="A conversation", model="tiny-llama")
    app.text_area(key="v_first").set_value(f"{SYSTEM} One fox.")
    app.text_area(key="v_edited").set_value(f"{SYSTEM} Two owls.")
    app.text_area(key="v_second").set_value("And then?").run()
    document = measured(app, "vt", lambda spec: conversation(spec, bench()))
    assert isinstance(app.scheduler.jobs()[0].spec, TalkSpec)
    words = said(app)
    for row in document["requests"]:
        assert row["sentence"] in words
    strips = [
        one.proto.body for one in app.get("html") if "kvf-strip" in one.proto.body and "<style" not in one.proto.body
    ]
    kept = [sum(map(int, re.findall(r'class="kept" data-tokens="(\d+)"', strip))) for strip in strips]
    assert kept == [row["warm"]["found_tokens"] for row in document["requests"]]


def test_an_edit_that_changes_nothing_is_refused(visit):
    app = visit(part="A conversation")
    app.text_area(key="v_edited").set_value(app.text_area(key="v_first").value).run()
    assert "change a word" in " ".join(warning.value for warning in app.warning)
    assert not any(button.key == "vt_measure" for button in app.button)


def test_a_look_that_failed_says_why(visit):
    app = visit(part="Prefix sharing")
    app.button(key="vs_measure").click().run()
    (work,) = app.scheduler.jobs()
    app.scheduler.record(work.id, {"t": "failed", "message": "no such thing"})
    app.run()
    assert [warning.value for warning in app.warning] == ["no such thing"]


def test_how_far_a_look_is():
    assert progress({}) == (0.0, "Loading …")
    assert progress({"t": "look"}) == (0.0, "Serving …")
    assert progress({"t": "way", "done": 1, "of": 4, "title": "x"}) == (0.25, "1 of 4: x")


def test_only_models_that_can_share_blocks_are_offered():
    assert {"mini-gpt2", "gpt2", "tiny-gemma3"} <= set(small_models("prefix"))
    assert not {"mamba-130m", "t5-small"} & set(small_models("prefix"))


@pytest.mark.slow
def test_each_row_opens_a_form_that_can_be_run(visit):
    app = visit("live")
    for fields in (fields for row in ROWS for fields in row["links"].values()):
        app.query_params.clear()
        app.query_params.update(fields)
        app.run()
        for name, value in fields.items():
            if name == "modes":
                assert {*app.session_state["modes"], *app.session_state["more_modes"]} == set(value.split(","))
            else:
                assert str(app.session_state[name]) == value
            assert name not in app.query_params
        assert not app.button(key="run").disabled and not app.warning
    app.button(key="run").click().run()
    (work,) = app.scheduler.jobs()
    assert (work.spec.modes, work.spec.attn) == (("cached", "int8", "int4"), "eager"), "the last, and what it leaves"


@pytest.mark.slow
def test_nonsense_in_a_link_to_the_form_counts_as_not_said(visit):
    app = visit("live", modes="nothing,at all", new_tokens="x", model="no-such", prompt=" ", attn="loud", batch="x")
    assert app.session_state["modes"] == ["uncached", "cached"] and app.selectbox(key="new_tokens").value == 192
    app = visit("live", modes="paged,nothing", new_tokens="9999")
    assert (app.session_state["modes"], app.session_state["more_modes"]) == ([], ["paged"])
    assert app.selectbox(key="new_tokens").value == 512


def test_the_blocks_that_a_request_needs_are_counted():
    one = {"prompt_tokens": 15, "hit_tokens": 0, "evicted_blocks": 0, "tree": []}
    for new, needs in ((1, "1 new block"), (2, "1 new block"), (3, "2 new blocks")):
        row = {"requests": [{**one, "token_ids": [0] * new}]}
        assert needed(row, 0, "the visitor", 4, 16) == f"The visitor needed {needs}; 4 of 4 were free: none had to go."
    row["requests"][0] |= {"prompt_tokens": 20, "evicted_blocks": 1}
    assert needed(row, 0, "A’s turn 1", 1, 16).startswith("A’s turn 1 needed 2 new blocks; 1")
