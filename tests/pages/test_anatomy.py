"""The anatomy page as Streamlit runs it, without a browser: what it asks for, and what the walk is given."""

import html
import json
import re
from functools import partial

import pytest

from kvviz.decoding.scratch.listing import listing
from kvviz.experiments.architectures.spec import SCENES, ArchitectureSpec
from kvviz.models.catalog.rows import models
from kvviz.models.spec import ModelSpec
from kvviz.ui.anatomy.architectures import HYBRIDS, RECURRENT, recorded_as
from kvviz.ui.anatomy.first_steps import beside, written
from kvviz.ui.anatomy.no_mask import AGAIN, FORWARDS, HELD, MASKED, OWN, encoder, says, with_cache, without_cache
from kvviz.ui.anatomy.shared_heads import EXAMPLES
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.experiment import kept_look

pytestmark = pytest.mark.slow


@pytest.fixture
def visit(open_page):
    """`visit(layer="1")` is the page with that in its address."""
    return partial(open_page, "anatomy")


def data_of(app):
    """What the page's components are given."""
    return [json.loads(element.proto.json) for element in app.get("bidi_component")]


def walk(app):
    """What the component is given."""
    return next(data for data in data_of(app) if "listing" in data)


def sharers(app):
    """The drawings of query heads and the KV heads that they share, as HTML."""
    return [part.proto.body for part in app.get("html") if 'class="kv-sharers"' in part.proto.body]


def masks(app):
    """The drawing of the masks, as HTML."""
    return "".join(part.proto.body for part in app.get("html") if 'class="kv-masks"' in part.proto.body)


def test_the_page_says_openly_why_no_query_is_kept_and_where_a_cache_has_no_use(visit):
    told = [text.value for text in visit().main.markdown]
    assert set(TEXTS["anatomy"]["why"].values()) <= {*told}


def test_a_look_is_taken_on_arrival_and_the_walk_follows_it(visit):
    app = visit()
    (work,) = app.scheduler.jobs()
    assert (work.spec.kind, work.spec.model, work.spec.layer, work.spec.new_tokens) == ("anatomy", "mini-gpt2", 0, 5)
    assert walk(app)["look"] == work.id
    given = walk(app)["listing"]
    assert "def forward(" in given["lines"][0]
    assert [stage["name"] for stage in given["stages"]] == [stage.name for stage in listing().stages]


def test_a_link_chooses_everything(visit):
    app = visit(model="mini-qwen3", layer="2", head="3", new="4", prompt="Hello")
    (work,) = app.scheduler.jobs()
    assert (work.spec.model, work.spec.layer, work.spec.new_tokens, work.spec.prompt) == ("mini-qwen3", 2, 4, "Hello")
    assert work.spec.head == 2  # the first of the group that shares the KV head of head 3
    assert walk(app)["head"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("params", [{"layer": "99", "head": "77", "new": "9999"}, {"layer": "-1", "new": "x"}])
def test_numbers_that_the_model_does_not_have_become_some_that_it_has(visit, params):
    (work,) = visit(model="tiny-gpt2", **params).scheduler.jobs()
    assert 0 <= work.spec.layer < 4
    assert 2 <= work.spec.new_tokens <= 12


@pytest.mark.slow
def test_another_model_with_fewer_heads_is_no_error(visit):
    app = visit(model="gpt2", head="11", layer="11")
    app.selectbox(key="a_model").select("mini-qwen3").run()
    assert not app.exception
    assert app.session_state["a_head"] == 3


@pytest.mark.slow
def test_an_empty_prompt_is_a_sentence(visit):
    app = visit()
    app.text_input(key="a_prompt").set_value("").run()
    assert not app.exception
    assert any("the prompt is empty" in warning.value for warning in app.warning)


@pytest.mark.slow
def test_a_look_that_failed_says_why(visit):
    app = visit()
    (work,) = app.scheduler.jobs()
    app.scheduler.record(work.id, {"t": "failed", "message": "no such thing"})
    app.run()
    assert [warning.value for warning in app.warning] == ["no such thing"]


@pytest.mark.slow
def test_the_letters_are_walked_line_by_line(visit):
    app = visit()
    assert app.button(key="l_back").disabled
    for _ in range(6):
        app.button(key="l_next").click().run()
    assert not app.exception
    assert app.button(key="l_next").disabled
    assert any("K,V(D)" in text.value for text in app.markdown)


@pytest.mark.slow
def test_who_shares_a_key_is_drawn_for_any_model_or_said_not_to_be(visit):
    app = visit()
    for model in ("gpt2", "qwen3-4b", "falcon-7b", "deepseek-v3", "mamba-130m"):
        app.session_state["h_model"] = model
        app.run()
        assert not app.exception
        assert len(sharers(app)) == (model != "mamba-130m"), model


@pytest.mark.parametrize(("model", "kept"), [("gpt2", 12), ("qwen3-4b", 8), ("falcon-7b", 1), ("deepseek-v3", 1)])
def test_each_kept_head_is_a_square_below_the_query_heads_that_read_it_and_the_bars_are_to_scale(visit, model, kept):
    app = visit()
    app.session_state["h_model"] = model
    (drawn,) = sharers(app.run())
    blocks = re.findall(r"<div><p>((?:<i></i>)+)</p><b></b></div>", drawn)
    heads = ModelSpec.from_config(models()[model].config, name=model).heads
    assert len(blocks) == kept and "".join(blocks).count("<i>") == heads
    parts = [float(part) for part in re.findall(r"--kv-part: ([\d.]+)", drawn)]
    own, held = (int(taken.replace(",", "")) for taken in re.findall(r"<b>([\d,]+) B</b>", drawn))
    assert parts == [1, pytest.approx(held / own, abs=1e-4)]


@pytest.mark.parametrize(
    ("model", "claim", "words"),
    [
        (
            "qwen3-4b",
            "**Qwen3-4B: 32 query heads share 8 KV heads, so a token takes 4,096 B in a layer, not 16,384 B**",
            "In bfloat16, a token takes 8 × (128 + 128) × 2 B = 4,096 B in a layer; 32 KV heads would take **4 times** "
            "as much. Query heads that meet in one square ask different questions about the same keys.",
        ),
        (
            "gpt2",
            "**GPT-2 small: each of 12 query heads has a KV head of its own**",
            "In bfloat16, a token takes 12 × (64 + 64) × 2 B = 3,072 B in a layer: every query head has keys and "
            "values of its own.",
        ),
        (
            "deepseek-v3",
            "**DeepSeek-V3: 128 query heads read one latent row, so a token takes 1,152 B in a layer, not 81,920 B**",
            "Multi-head latent attention (MLA), in bfloat16: a row takes (512 + 64) × 2 B = 1,152 B; keys and values "
            "of all 128 heads would take **71.1 times** as much. Each head could compute its keys and values from the "
            "row; in practice the key matrix is folded into the query.",
        ),
    ],
)
def test_what_sharing_a_key_spares_is_said_in_bytes(visit, model, claim, words):
    app = visit()
    app.session_state["h_model"] = model
    told = [text.value for text in app.run().markdown]
    assert claim in told and words in told


@pytest.mark.slow
def test_a_way_to_share_is_shown_on_a_model_and_a_model_names_its_way(visit):
    app = visit()
    ways = app.segmented_control(key="h_kind")
    assert ways.value == "Grouped-query (GQA)" and app.session_state["h_model"] == "qwen3-4b"
    for way, model in EXAMPLES.items():
        app.segmented_control(key="h_kind").set_value(way).run()
        assert app.session_state["h_model"] == model and app.segmented_control(key="h_kind").value == way
    app.selectbox(key="h_model").select("mamba-130m").run()
    assert app.segmented_control(key="h_kind").value is None and not app.exception


@pytest.mark.slow
def test_another_design_is_chosen_in_a_box_and_left_by_a_button(visit):
    app = visit(scene="delta")
    assert app.selectbox(key="a_other").value == "delta" and app.segmented_control(key="a_first").value is None
    app.segmented_control(key="a_first").set_value("masks").run()
    assert app.selectbox(key="a_other").value is None and "query of token 0" in masks(app)
    app.selectbox(key="a_other").select("latent").run()
    assert app.segmented_control(key="a_first").value is None
    assert app.query_params["scene"] in ("latent", ["latent"])


def in_plain_code(app):
    """The page with the tab of that name open."""
    return app.segmented_control(key="a_closer").set_value("Attention in plain code").run()


def test_the_forward_without_a_cache_stands_beside_the_lines_of_the_other_that_do_the_same(visit):
    plain, cached = (written(f"{name}.forward") for name in ("AttentionNoCache", "AttentionWithCache"))
    same = beside(plain, cached)
    assert [line for line in same if line is not None] == plain and len(same) == len(cached)
    (drawn,) = [
        part.proto.body for part in in_plain_code(visit()).get("html") if 'class="kv-forwards"' in part.proto.body
    ]
    marked = re.findall(r'<span class="kv-mend">(.*?)</span>', drawn)
    assert [html.unescape(line) for line in marked] == [line for line in cached if line not in plain]
    assert "type: ignore" not in drawn
    shown = [html.unescape(line) for line in re.findall(r"<span.*?>(.*?)</span>", drawn)]
    assert max(map(len, shown)) < 80, "a column of a page 1,440 pixels wide has room for that many"


@pytest.mark.slow
def test_the_masks_are_a_scene_of_their_own(visit):
    app = visit(scene="masks")
    drawn = masks(app)
    assert drawn.count("<table>") == 5 and not app.scheduler.jobs()
    assert drawn.count(MASKED[0]) == 2 * (10 + 15 + 0 + 3), "a cell says in words what its colour says"
    assert [says(forward) for forward in FORWARDS] == [
        "5 × 5 = 25 pairs, 10 masked",
        "6 × 6 = 36 pairs, 15 masked",
        "1 × 6 = 6 pairs, none masked",
        "3 × 8 = 24 pairs, 3 masked",
        "6 × 6 = 36 pairs, no mask",
    ]


@pytest.mark.parametrize(("held", "new"), [(0, 5), (5, 1), (5, 3)])
def test_what_is_hidden_is_what_comes_after_its_query(held, new):
    rows = with_cache("", held, new).rows
    assert [len(row) for row in rows] == [held + new] * new
    assert all(row[:held] == [HELD] * held for row in rows), "whatever is cached is older than every query"
    assert all(row[held + i] == OWN for i, row in enumerate(rows)), "a token reads itself"
    assert all(row[held + i + 1 :] == [MASKED] * (new - 1 - i) for i, row in enumerate(rows))


def test_without_a_cache_earlier_pairs_are_computed_again():
    assert without_cache("", 2).rows == [[AGAIN, MASKED, MASKED], [AGAIN, AGAIN, MASKED], [OWN, OWN, OWN]]
    assert encoder("", 5).rows == [[AGAIN] * 5 + [OWN]] * 5 + [[OWN] * 6], "each earlier row reads the new key"


@pytest.mark.slow
def test_the_first_steps_run_when_asked(visit):
    app = in_plain_code(visit())
    app.button(key="f_run").click().run()
    assert not app.exception
    assert [work.spec.kind for work in app.scheduler.jobs()] == ["anatomy", "first-steps"]
    app.slider(key="f_temperature").set_value(0.5).run()
    assert app.scheduler.jobs()[-1].spec.temperature == 0.5
    shown = "\n".join(block.value for block in app.code)
    assert "class GPTWithCache" in shown and "def generate_with_cache" in shown and "/ temperature" not in shown


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES)
def test_another_layer_is_walked_through_on_its_tiny_model(visit, scene):
    app = visit(scene=scene, text="abc", steps="3")
    (work,) = app.scheduler.jobs()
    assert work.spec == ArchitectureSpec(scene, "abc", 3)
    assert work.id in [data.get("look") for data in data_of(app)]
    assert any("nobody trained it" in caption.value for caption in app.caption)


@pytest.mark.parametrize("name", [*HYBRIDS[1:], *RECURRENT])
def test_the_states_of_published_models_have_the_formats_that_the_caption_names(name):
    layers = ModelSpec.from_config(models()[name].config, name=name).layers
    kept = {(state.name, state.float32) for layer in layers for state in layer.states}
    assert kept == {("recurrent", True), ("convolution", False)}


@pytest.mark.parametrize("scene", ["attention", "delta", "indexer", "shared"])
def test_a_recording_of_what_is_asked_at_first_is_shown_until_the_walk_is_there(visit, scene):
    app = visit(scene=scene)
    (work,) = app.scheduler.jobs()
    name = "anatomy" if scene == "attention" else recorded_as(scene)
    kept = kept_look(work.spec, name)
    assert kept["records"][1]["t"] == work.spec.kind
    (given,) = (data for data in data_of(app) if data.get("look") == work.id)
    assert given["kept"]["address"].endswith(f"/{name}.json.gz")
    assert kept["made"] in given["kept"]["words"]
    app.scheduler.record(work.id, {"t": "done", "document": {}})
    app.run()
    assert all(data.get("kept") is None for data in data_of(app))


def test_another_text_than_the_recorded_one_has_no_recording(visit):
    app = visit(scene="delta", text="abc")
    assert [data["kept"] for data in data_of(app) if "look" in data] == [None]
