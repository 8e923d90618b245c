"""The sweep page as Streamlit runs it: presets, a grid of one's own, results as they come, going on after a stop."""

from functools import partial

import pytest

from kvviz.experiments.sweep.spec import PRESETS, SweepSpec
from kvviz.ui.shared.experiment import recording
from tests.pages.conftest import charts


@pytest.fixture
def visit(open_page, store):
    return partial(open_page, "sweep")


def cell_pass(cell, mode, number, seconds):
    return {"t": "cell_pass", "cell": cell, "mode": mode, "round": number, "s": seconds, "same": True}


@pytest.mark.slow
def test_every_preset_is_ready_to_press(visit):
    app = visit()
    for preset in PRESETS:
        app.selectbox(key="s_preset").select(preset).run()
        assert not app.exception
        assert app.button(key="s_run").disabled == PRESETS[preset].gpu
        assert any(PRESETS[preset].question in words.value for words in app.markdown)
        printed = PRESETS[preset].published
        timed = printed is not None and any("total_s" in row or "itl_s" in row for row in printed.rows)
        recorded = preset == recording("sweep")["document"]["spec"]["preset"]
        assert len(charts(app)) == 1 + recorded
        assert recorded == any("This is a **recording** of" in words.value for words in app.markdown)
        assert any("counted by formula" in words.value for words in app.markdown) != timed, (
            "never passed off as measured"
        )
        if PRESETS[preset].gpu:
            assert any("shows what only a GPU does" in said.value for said in [*app.error, *app.warning, *app.info])
            continue
        beside, band = (
            ["estimated." in said.value for said in each].count(True) for each in (app.caption, app.markdown)
        )
        assert (beside, band) == (not recorded, recorded), "in the recording's band, else below the buttons"


@pytest.mark.slow
def test_what_is_odd_in_the_table_is_said_in_its_own_figures(visit):
    app = visit()
    said = [words.value for words in app.markdown]
    assert "In each cell: **without → with** the cache." in said
    (table,) = [words for words in said if words.startswith("| Prompt | Tokens computed |")]
    assert "| 3.0\u00a0→\u00a02.6 |" in table and "\u00a00.72 |" in table and "\u00a00.68 |" in table
    assert (
        "For the first token both compute the same prompt, yet TTFT differs by up to 15%: a difference of this size "
        "may be noise. A later token with the cache takes less at 512 than at 256: within the spread of its steps "
        "(their quartiles overlap).\n\nA point's bar reaches from its fastest pass to its slowest." in said
    )


@pytest.mark.slow
def test_run_submits_the_preset(visit):
    app = visit()
    app.selectbox(key="s_model_lab-01").select("tiny-gpt2").run()
    app.button(key="s_run").click().run()
    assert not app.exception
    (work,) = [work for work in app.scheduler.jobs() if work.kind == "sweep"]
    assert work.spec.preset == "lab-01" and work.spec.models == ("tiny-gpt2",)
    assert work.spec.prompt_tokens == (64, 128, 256, 512)
    assert not app.button(key="s_stop").disabled


@pytest.mark.slow
def test_a_grid_that_can_not_be_read_is_one_sentence(visit):
    app = visit()
    app.selectbox(key="s_preset").select("A grid of your own").run()
    for text in ("", "64, x", "-5", "1e3", "999999999999"):
        app.text_input(key="s_prompts").set_value(text).run()
        assert not app.exception
        assert len(app.warning) == 1 and app.button(key="s_run").disabled


@pytest.mark.slow
def test_a_grid_whose_models_a_mode_can_not_do_is_one_sentence(visit):
    app = visit()
    app.selectbox(key="s_preset").select("A grid of your own").run()
    app.multiselect(key="s_modes").set_value(["cached", "scratch"])
    app.multiselect(key="s_models").set_value(["tiny-mistral"]).run()
    assert not app.exception
    assert "sliding window of 16 tokens" in app.warning[0].value and app.button(key="s_run").disabled
    app.multiselect(key="s_models").set_value(["tiny-mistral", "tiny-qwen3"]).run()
    assert not app.warning and not app.button(key="s_run").disabled


@pytest.mark.slow
def test_results_fill_in_and_the_published_table_stands_beside_them(visit):
    app = visit()
    own = app.scheduler.submit(SweepSpec(models=("tiny-gpt2",), preset="lab-01"))
    app.scheduler.record(own, cell_pass(0, "uncached", 0, [0.4, 0.4]))
    app.scheduler.record(own, cell_pass(0, "cached", 0, [0.3, 0.1]))
    app.scheduler.record(own, cell_pass(1, "uncached", 0, [0.8, 0.8]))
    app.scheduler.record(own, cell_pass(1, "cached", 0, [0.3, 0.1]))
    app.scheduler.record(own, {"t": "progress", "done": 4, "of": 24, "left_s": 60.0})
    app.query_params["sweep"] = own
    app.run()
    assert not app.exception
    table = next(frame.value for frame in app.dataframe if "passes" in frame.value.columns)
    assert list(table["speed-up"]) == [1.0, 2.0, 1.0, 4.0]
    said = [words.value for words in app.markdown]
    claims = [header.value for header in app.header]
    assert claims[0] == "The cache makes generation 2.0 times as fast at a prompt of 64 tokens, 4.0 times at 128"
    assert "Measured on this server: tiny-gpt2." in said
    (table,) = [words for words in said if words.startswith("| Prompt | Tokens computed |")]
    *_, first, last = table.splitlines()
    assert first.endswith("| 800\u00a0→\u00a0400 | **2.0×** |"), "as the title says it"
    assert last.endswith("| 1,600\u00a0→\u00a0400 | **4.0×** |")
    assert not any("in the published table" in words for words in said), "before every row is there"
    (bytes_,) = [words.value for words in app.caption if "chosen and never read again" in words.value]
    assert "It can be higher with the cache: joining holds the old and the new tensors at once" in bytes_
    assert "Published: the same experiment on another machine" in [one.label for one in app.expander]
    assert any("not measured on this machine" in words for words in said)
    drawn = [figure["data"] for figure in charts(app)]
    marks = [{label["text"] for label in figure["layout"]["annotations"]} for figure in charts(app)]
    assert ["<b>PUBLISHED</b>" in each for each in marks] == [False, True]
    assert all(len(chart) == 2 for chart in drawn)
    assert {"<b>2.0×</b>", "<b>4.0×</b> as fast"} < marks[0] and "<b>47×</b> as fast" in marks[1]
    changes = next(frame.value for frame in app.dataframe if "No cache, at 64" in frame.value.columns)
    whole = changes.set_index("figure").loc["whole time"]
    assert (whole["No cache, at 64"], whole["No cache, at 128"], whole["KV cache"]) == (
        "800 ms",
        "1.6 s",
        "stays within 0%",
    )
    published = [frame.value for frame in app.dataframe if "passes" not in frame.value.columns]
    assert any(46.9 in set(frame.get("speed-up", ())) for frame in published)


@pytest.mark.slow
def test_a_stopped_sweep_goes_on_where_it_ended(visit):
    app = visit()
    own = app.scheduler.submit(SweepSpec(models=("tiny-gpt2",)))
    app.scheduler.record(own, cell_pass(0, "uncached", 0, [0.4, 0.4]))
    app.scheduler.record(own, {"t": "stopped"})
    app.query_params["sweep"] = own
    app.run()
    app.button(key="s_resume").click().run()
    assert not app.exception
    again = [work for work in app.scheduler.jobs() if work.kind == "sweep"][-1]
    assert again.id != own and [record["t"] for record in again.earlier] == ["cell_pass"]


@pytest.mark.slow
def test_a_kept_sweep_is_the_opening_picture(visit, store):
    rows = [
        {
            "mode": mode,
            "model": "m",
            "dtype": "float32",
            "batch": 1,
            "prompt_tokens": prompt,
            "new_tokens": 64,
            "itl_s": s,
        }
        for mode, prompt, s in (("cached", 64, 0.001), ("cached", 512, 0.004))
    ]
    rest = dict.fromkeys(("total_s", "speedup", "ttft_s", "tokens_per_s", "cache_bytes", "peak_bytes"))
    store.begin("kept", {"model": "m"}, kind="sweep", title=f"{PRESETS['lab-01'].title} (m)")
    about = {"spec": {"models": ["m"]}, "environment": {"device_name": "a device"}}
    store.finish("kept", "done", {**about, "rows": [{**rest, **row} for row in rows]})
    app = visit()
    assert not app.exception
    assert any("A kept sweep of this server: m on a device, " in words.value for words in app.markdown), (
        "it says where it is from"
    )
    assert any("the time per token climbs to 4 times with the cache" in words.value for words in app.header)


@pytest.mark.slow
def test_a_grid_without_the_cached_mode_has_a_heat_map_of_another(visit):
    app = visit()
    grid = SweepSpec(models=("tiny-gpt2",), modes=("uncached", "unpassed"), prompt_tokens=(4, 8), new_tokens=(2, 3))
    own = app.scheduler.submit(grid)
    for cell in range(4):
        for mode in grid.modes:
            app.scheduler.record(own, cell_pass(cell, mode, 0, [0.1] * (2 + cell % 2)))
    app.query_params["sweep"] = own
    app.run()
    traces = [figure["data"][0] for figure in charts(app)]
    (heat,) = (trace for trace in traces if trace["type"] == "heatmap")
    assert len(heat["x"]) == len(heat["y"]) == 2
