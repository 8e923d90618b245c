"""Runs held against one another: names, ratios, spread, and what was not the same work."""

import dataclasses
from datetime import UTC, datetime

import pytest

from kvviz.charts import palette
from kvviz.charts.curves import MAX_POINTS, Curve, mark_the_prefill, overlay, telling, widest, with_ends
from kvviz.experiments.comparison.figures import figures
from kvviz.store.compare_runs import apart, beyond_spread, differences, like_runs, names, rows
from kvviz.store.db.stored import Run, Stored

STORED = {
    **dict.fromkeys(("title", "message", "config_hash"), ""),
    **{"id": "a", "kind": "comparison", "origin": "here", "state": "done", "created": datetime(2026, 1, 1, tzinfo=UTC)},
    **{"model": "gpt2", "weights": "random", "device": "cpu", "device_name": "a CPU", "dtype": "float32"},
    **{"modes": ("uncached", "cached"), "prompt": "x", "prompt_tokens": 8, "new_tokens": 4, "batch": 1},
    **{"tags": (), "headline": (), "deleted": False, "made_by": ""},
}


def run(mode="cached", repeats=((1.0, 1.0), (1.1, 1.1)), total=2.0, **stored):
    comparison = Stored(**{**STORED, **stored})
    figures = {"ttft_s": 1.0, "itl_s": total / 2, "total_s": total, "tokens_per_s": 4 / total}
    return Run(f"{comparison.id}-{mode}", comparison, mode, repeats, {**figures, "cache_bytes": [8, 16]})


def test_names_are_as_short_as_tells_apart():
    assert names([run("uncached"), run("cached")]) == ["No cache", "KV cache"]
    assert names([run(id="a"), run(id="b", model="qwen3-4b")]) == ["KV cache, gpt2", "KV cache, qwen3-4b"]
    cards = names([run(id="a", device="cuda:0"), run(id="b", device="cuda:1")])
    assert cards == ["KV cache, cuda:0", "KV cache, cuda:1"]
    shares = names([run(id="a", device="gpu-1/cpu:0"), run(id="b", device="gpu-2/cpu:0")])
    assert shares == ["KV cache, gpu-1/cpu:0", "KV cache, gpu-2/cpu:0"]
    twins = names([run(id="a"), run(id="b")])
    assert len(set(twins)) == 2


def test_servers_are_called_by_their_engines_and_explained_by_nothing_here():
    lanes = [run("endpoint", ((total,), (total,)), total, id=str(total)) for total in (1.0, 4.0, 9.0)]
    for lane, name, version in zip(lanes, (None, "vllm", "transformers"), (None, "0.32.0", None), strict=True):
        lane.figures["engine"] = {"name": name, "version": version, "model": "m"}
    assert names([run("cached"), *lanes]) == ["KV cache", "Server of m", "vLLM 0.32.0", "transformers serve"]
    assert names([run("endpoint")]) == ["Endpoint, gpt2"], "of an older kvviz, which kept nothing of its engine"
    assert apart(lanes, names(lanes)) == []
    assert like_runs([(lane.comparison, lane.mode, lane.figures["itl_s"]) for lane in lanes]) == [None] * 3


def test_ratios_are_against_the_baseline_and_say_if_they_exceed_the_spread():
    slow, fast = run("uncached", ((4.0,), (4.2,)), 4.0), run("cached", ((1.0,), (1.2,)), 1.0)
    base, other = rows([slow, fast], ["u", "c"], 0)
    assert (base.total_ratio, base.beyond) == (1.0, None)
    assert (other.total_ratio, other.beyond) == (4.0, True)


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [([1, 2], [3, 4], True), ([1, 3], [2, 4], False), ([1], [3, 4], None), ([], [], None)],
)
def test_beyond_the_spread(one, other, said):
    one, other = (run(repeats=[(total,) for total in totals]) for totals in (one, other))
    assert beyond_spread(one, other) is said


def test_of_two_like_runs_the_one_that_was_disturbed_is_known():
    quiet, busy, other = run(id="a"), run(id="b"), run(id="c", prompt_tokens=512)
    timed = [(quiet.comparison, "cached", 2.5e-3), (busy.comparison, "cached", 6.6e-3)]
    more = [(other.comparison, "cached", 9.0), (busy.comparison, "uncached", 9.0), (busy.comparison, "cached", None)]
    assert like_runs(timed + more) == [None, pytest.approx(2.64), None, None, None]
    assert like_runs([timed[0], (busy.comparison, "cached", 2.9e-3)]) == [None, None], "a little noise is none"


@pytest.mark.parametrize(
    ("passes", "why"),
    [
        (None, "How disturbed it was is not known"),
        ({"clean": 0, "disturbed": 3}, "Other work disturbed every pass of it"),
        ({"clean": 3, "disturbed": 1}, "No other work took a core from it"),
    ],
)
def test_like_runs_that_differ_by_more_than_their_spread_are_pointed_out(passes, why):
    fast, slow = run(id="a", repeats=((1.0,), (1.1,)), total=1.05), run(id="b", repeats=((1.5,), (1.6,)), total=1.55)
    slow.figures["passes"] = passes
    (found,) = apart([slow, fast, run("uncached", id="a")], ["slow", "fast", "other"])
    assert found.startswith(f"slow took 1.5 times as long as fast, the same work. {why}")


def test_like_runs_within_their_spread_or_of_other_work_are_not():
    near = run(id="b", repeats=((1.05,), (2.0,)), total=1.5)
    other = run(id="c", repeats=((9.0,), (9.1,)), total=9.0, prompt_tokens=512)
    assert apart([run(id="a", repeats=((1.0,), (1.1,)), total=1.05), near, other], ["a", "b", "c"]) == []


def test_other_work_is_told_in_words():
    assert differences([run(), run("uncached")]) == []
    found = differences([run(), run(id="b", prompt_tokens=512, dtype="bfloat16", device_name="a GPU")])
    assert any("prompt lengths: 8, 512" in words for words in found)
    assert any("precisions" in words for words in found) and any("a GPU" in words for words in found)


def test_an_edit_far_into_a_long_prompt_is_seen():
    told = "Once upon a time there was a little fox who lived near the old "
    (found,) = differences([run(prompt=f"{told}market."), run(id="b", prompt=f"{told}lake.")])
    assert found == "other prompts: …ear the old market., …ear the old lake."


def test_runs_that_made_other_numbers_of_tokens_or_chose_them_otherwise_are_no_ratio_without_a_note():
    whole, cut = run("uncached", total=24.0), run("cached", id="b", total=1.0)
    whole.figures["step_s"], cut.figures["step_s"] = [1.0] * 24, [1.0]
    assert (rows([whole, cut], ["u", "c"], 0)[1].total_ratio, rows([whole, cut], ["u", "c"], 0)[1].beyond) == (
        None,
        None,
    )
    whole.spec.update(sampling={"temperature": 0.0, "seed": 0}, attn="sdpa")
    cut.spec.update(sampling={"temperature": 1.0, "top_k": None, "seed": 0}, attn="eager", stop_at_eos=True)
    assert differences([whole, cut]) == [
        "other numbers of tokens made: 24, 1",
        "other ways to choose a token: greedy, temperature 1.0, seed 0",
        "other attention: sdpa, eager",
        "other places to stop: none, at the end token",
    ]


def curve(name, seconds, prompt=8):
    return Curve(name, tuple(seconds), tuple(seconds), tuple(seconds), tuple(range(len(seconds))), prompt)


def test_a_lines_name_carries_the_claims_number():
    two = [
        dataclasses.replace(curve(mode, seconds), mode=mode)
        for mode, seconds in (("uncached", [1, 2, 3]), ("cached", [1, 1, 1]))
    ]
    assert [each.name for each in with_ends(two, "total", "≈ ")] == ["uncached\n≈ 6 s", "cached\n≈ 3 s"]
    assert with_ends(two, "speedup") == two


@pytest.mark.parametrize(("first", "marked"), [(2.4, False), (2.6, True)])
def test_a_prefill_that_stands_out_is_named(first, marked):
    def words(*curves, by="step"):
        return [label.text for label in mark_the_prefill(overlay(curves, by=by), curves, by).layout.annotations]

    plain, spiked = curve("a", [2, 2, 2]), curve("b", [first, 2, 2], prompt=16)
    assert ("first token: the prefill" in words(plain, spiked)) is marked
    assert "first token: the prefill" not in words(plain, spiked, by="position"), "they begin apart"


def test_on_a_logarithmic_scale_the_prefill_is_named_where_it_is():
    spiked = [curve("a", [1.0, 0.1, 0.1])]
    (*_, label) = mark_the_prefill(overlay(spiked, log=True), spiked).layout.annotations
    assert label.text == "first token: the prefill" and 10**label.y == pytest.approx(1000)
    assert 1000 < 10**label.ay < 1400


def test_what_was_predicted_is_drawn_thin_and_dashed_under_its_run():
    plain = curve("a", [4, 2, 2])
    figure = overlay([dataclasses.replace(plain, predicted_s=(0.003, 0.002, 0.001))])
    added = [trace for trace in figure.data if trace.line.dash == "dash"]
    assert [list(trace.y) for trace in added] == [[3.0, 2.0, 1.0]]
    assert added[0].line.width < 2 and added[0].legendgroup == "0" and not added[0].showlegend
    assert len(figure.data) == len(overlay([plain]).data) + 1


def test_the_time_so_far_is_a_view_of_its_own_with_the_prediction_added_up():
    run = dataclasses.replace(curve("a", [4, 2, 2]), predicted_s=(3.0, 2.0, 1.0))
    figure = overlay([run], view="total")
    predicted, so_far = figure.data
    assert list(so_far.y) == [4, 6, 8] and list(predicted.y) == [3, 5, 6] and predicted.line.dash == "dash"
    assert [axis.title.text for axis in figure.select_yaxes()] == ["seconds so far"]
    assert [axis.title.text for axis in overlay([run], view="step").select_yaxes()] == ["ms for this token"]


def test_the_time_so_far_ends_at_the_runs_total():
    """At the median of the passes' sums, as the figures have it, and not at the sum of the steps' medians."""
    passes = ((4.0, 1.0, 1.0), (1.0, 4.0, 1.0), (1.0, 1.0, 5.0))
    run = dataclasses.replace(curve("a", [1, 1, 1]), repeats=passes)
    assert run.so_far[-1] == figures(passes)["total_s"] == 6.0
    assert curve("a", [1, 1, 1]).so_far == [1, 2, 3], "where no pass is known"


def test_modes_have_their_colours_and_runs_of_one_mode_a_series():
    one, other = (dataclasses.replace(curve(mode, [1, 2]), mode=mode) for mode in ("uncached", "cached"))

    def colours(*curves):
        return [trace.line.color for trace in overlay(curves, view="total").data]

    def dashes(*curves):
        return [trace.line.dash for trace in overlay(curves, view="total").data]

    assert colours(one, other) == [palette.LIGHT["uncached"], palette.LIGHT["cached"]]
    assert colours(other, other) == list(palette.SERIES[:2])
    assert colours(one, other, other) == [palette.LIGHT[mode] for mode in ("uncached", "cached", "cached")]
    assert dashes(one, other, other) == ["solid", "solid", "dash"], "the second run of a mode"


def test_the_overlay_lines_up_by_step_or_by_position():
    figure = overlay([curve("a", [4, 2, 2]), curve("b", [1, 1, 1, 1], prompt=9)], by="position", view="all")
    lines = [trace for trace in figure.data if trace.mode != "none"]
    assert list(lines[0].x) == [9, 10, 11] and list(lines[4].x) == [10, 11, 12, 13]
    assert list(lines[7].y) == [2.0, 2.0, None, None], "speed-up only where the baseline has that position"
    assert list(lines[5].y) == [1, 2, 3, 4], "time so far adds up"
    by_step = overlay([curve("a", [4, 2, 2]), curve("b", [1, 1, 1, 1], prompt=9)], view="all")
    assert list(by_step.data[9].y) == [4.0, 2.0, 2.0, None]


def test_all_charts_share_one_axis_so_that_zoom_is_common():
    layout = overlay([curve("a", [1, 2])], view="all").layout
    assert {layout[name].matches for name in ("xaxis", "xaxis2", "xaxis3")} == {"x4"}


def test_a_long_line_keeps_its_spikes():
    values = [1.0] * 10_000
    values[4321], values[777] = 50.0, 0.1
    shown = telling(values)
    assert len(shown) <= MAX_POINTS + 2 and {0, 777, 4321, 9_999} <= set(shown)
    assert shown == sorted(shown) and telling(values[:50]) == list(range(50))


@pytest.mark.parametrize(("high", "at"), [(1.2, None), (1.5, 34)])
def test_the_token_is_told_at_which_the_band_is_widest(high, at):
    above = [1.0] * 64
    above[29:49], above[33:42], above[59] = [1.1] * 20, [high] * 9, 9.0  # of which a running median leaves out the last
    assert widest(Curve("No cache", (1.0,) * 64, (1.0,) * 64, tuple(above), (), 8)) == at
    assert widest(Curve("No cache", (1.0,), (1.0,), (1.0,), (), 8)) is None, "no decode step"
