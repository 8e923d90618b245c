"""Figures of the roofline page: where points and bars stand, on logarithmic axes too."""

import math

import pytest

from kvviz.base.words import ratio, two_digits
from kvviz.charts import palette
from kvviz.charts.roofline import (
    Pass,
    _reach,
    batch_figure,
    pieces,
    profile_figure,
    roofline_figure,
    series,
    slow_start,
    uncached_rates,
    untold,
    waiting,
    waiting_figure,
)
from kvviz.cost.roofline import Roof


def step(tokens, batch, phase="decode", s=0.01):
    flops, nbytes = 1e6 * batch * (tokens if phase == "prefill" else 1), 1e6
    return {
        **{"phase": phase, "tokens": tokens, "batch": batch, "flops": flops, "bytes": nbytes, "s": s},
        **{"s_q1": s / 2, "s_q3": 2 * s, "intensity": flops / nbytes, "flops_per_s": flops / s, "roof_share": 0.5},
        **{"tokens_per_s": batch / s, "weight_bytes": 4e5},
    }


POINTS = [
    *(step(tokens, 1, "prefill") for tokens in (16, 32, 64)),
    *(step(tokens, 1) for tokens in (16, 32, 64)),
    *(step(tokens, batch) for tokens in (32, 64) for batch in (2, 4)),
]
PROFILES = [{"forward": "compiled step", "tokens": 64, "unprofiled_s": 5e-4}]
FOUND = {
    **{"points": POINTS, "roof": {"read": 1e9, "flops": 1e10}, "row": {"read": 5e8, "flops": 1e10}},
    **{"profiles": PROFILES, "near_read": 4e9, "starting_s": 4e-3},
}

PAD = Pass("a prefill", 100, {"compute": 80, "launch": 0}, "")
NONE = dict.fromkeys(("slower", "copying", "unknown", "launch", "rest"), 0.0)


def test_points_move_in_three_rows():
    rows = {name: [(p["tokens"], p["batch"]) for p in row] for name, row in series(POINTS).items()}
    assert rows == {
        "prefill": [(16, 1), (32, 1), (64, 1)],
        "short": [(32, 1), (32, 2), (32, 4)],
        "long": [(64, 1), (64, 2), (64, 4)],
    }
    assert set(series([p for p in POINTS if p["batch"] == 1])) == {"prefill", "long"}


def test_the_roof_bends_at_its_ridge_and_points_carry_their_quartiles():
    figure = roofline_figure(FOUND, ("Another", Roof(1e12, 1e14)))
    roof = figure.data[0]
    assert 10 in roof.x and roof.y[list(roof.x).index(10)] == roof.y[-1] == 1e10
    assert roof.y[0] == pytest.approx(1e9 * roof.x[0])
    prefill = next(trace for trace in figure.data if trace.name.startswith("prefill"))
    assert list(prefill.y) == [1.6e9, 3.2e9, 6.4e9]
    assert list(prefill.error_y.array) == [1.6e9, 3.2e9, 6.4e9]  # half the time is twice the rate
    assert list(prefill.error_y.arrayminus) == [0.8e9, 1.6e9, 3.2e9]
    there = next(trace for trace in figure.data if trace.name == "these forward passes there, at most")
    drawn = [*POINTS[:3], POINTS[5], *POINTS[8:]]  # prefills, and the batches at the longest context
    assert list(there.y) == [min(1e14, 1e12 * p["intensity"]) for p in drawn]
    said = [note.text for note in figure.layout.annotations]
    for words in (
        "ridge: 10 FLOP/B",
        "prefill</b><br>of 16 → 64 tokens",
        "decode step</b><br>of 1 → 4 sequences<br>at 64 tokens",
    ):
        assert any(words in one for one in said)
    low, high = figure.layout.yaxis.range
    assert low < math.log10(min(p["flops_per_s"] for p in POINTS)) and high > 14


def test_a_line_says_from_where_to_where_it_goes():
    assert [_reach([1], "sequences"), _reach([2], "sequences")] == ["of 1 sequence", "of 2 sequences"]
    assert _reach([16, 128, 256, 1024], "tokens") == "of 16 → 1,024 tokens"


def test_a_forwards_time_is_divided_into_what_it_waits_for():
    rows = {each.name.split(":")[0]: (each.seconds, each.spent) for each in waiting(FOUND)}
    assert all(sum(spent.values()) == pytest.approx(seconds) for seconds, spent in rows.values())
    step = rows["decode step at 64 tokens"][1]
    assert step == pytest.approx({**NONE, "memory": 1e-3, "slower": 1e-3, "launch": 4e-3, "rest": 4e-3})
    assert "compute" in rows["prefill of 64 tokens"][1] and rows["prefill of 64 tokens"][1]["compute"] == pytest.approx(
        6.4e-3
    )
    compiled = rows["the same step, compiled"][1]  # faster than memory: from the chip's cache
    assert compiled == pytest.approx({**NONE, "memory": 2.5e-4, "rest": 2.5e-4})
    unmeasured = waiting({**FOUND, "near_read": None})
    assert [each.name.split(":")[0] for each in unmeasured] == ["decode step at 64 tokens", "prefill of 64 tokens"]
    figure = waiting_figure(waiting(FOUND))
    whole = {
        (bar.xaxis, row): sum(other.x[row] for other in figure.data if other.xaxis == bar.xaxis)
        for bar in figure.data
        for row in bar.y
    }
    ms = [1e3 * each.seconds for each in waiting(FOUND)]
    assert whole == pytest.approx({("x", 0): ms[0], ("x", 1): ms[1], ("x2", 0): ms[2]}), "steps share one scale"
    assert (figure.layout.xaxis.range, figure.layout.xaxis2.range) == ((0, ms[0]), (0, ms[2]))
    assert [each.rate for each in waiting(FOUND)] == ["500 MB/s", "4 GB/s", "10 GFLOP/s"]
    assert untold(waiting(FOUND)) == ["reading at 500 MB/s", "reading at 4 GB/s"], "which have no room in their bars"
    assert "arithmetic 64%<br>at 10 GFLOP/s" in [words for bar in figure.data for words in bar.text]
    reading = figure.data[0]
    assert (reading.name, reading.x[0]) == ("reading", pytest.approx(0.2 * ms[0])), (
        "with what is read more slowly than the roof allows"
    )
    (point,) = (trace for trace in roofline_figure(FOUND).data if trace.name == "compiled step")
    assert point.y[0] == 2e9 > 1e9 * point.x[0]
    assert (point.marker.symbol, point.marker.color) == ("square-open", palette.DECODE), "a decode step"


def test_the_profilers_shares_divide_the_time_without_it_and_its_gaps_are_no_work():
    profile = {"forward": "decode", "tokens": 64, "wall_s": 0.02}  # twice the 0.01 s of the step by itself
    classes = {"weights": 8e-3, "attention": 2e-3, "cache": 2e-3, "other": 2e-3, "call": 0.0, "gaps": 6e-3}
    (_, seconds, spent, _), *_ = waiting({**FOUND, "profiles": [*PROFILES, {**profile, "classes": classes}]})
    assert spent == pytest.approx(
        {**{"memory": 1e-3, "slower": 1e-3, "copying": 1e-3, "unknown": 3e-3, "launch": 3e-3, "rest": 1e-3}}
    )
    assert pieces(seconds, spent) == pytest.approx({"memory": 0.2, "launch": 0.3, "rest": 0.5})


@pytest.mark.parametrize(
    ("spent", "named", "heading"),
    [
        (
            {"memory": 5, "launch": 3, "rest": 2},
            ["reading<br>50%", "launch<br>30%", "the rest<br>20%"],
            "",
        ),
        ({"memory": 0.5, "launch": 8.5, "rest": 1}, ["5%", "launch<br>85%", "10%"], ", reading 5%, the rest 10%"),
        ({"compute": 8, "launch": 0.1, "unknown": 1, "rest": 0.9}, ["arithmetic<br>80%", "the rest<br>20%"], ""),
        ({"memory": 0.2, "launch": 8.8, "rest": 1}, ["", "launch<br>88%", "10%"], ", reading 2%, the rest 10%"),
        ({"compute": 8, "slower": 1, "launch": 0, "rest": 1}, ["arithmetic<br>90%", "10%"], ", the rest 10%"),
        ({"compute": 10, "launch": 0}, ["arithmetic<br>100%"], ""),
    ],
)
def test_every_piece_of_a_bar_is_named_in_it_or_above_it(spent, named, heading):
    figure = waiting_figure([Pass("a step", 10, spent, "")])
    assert [bar.text[0] for bar in figure.data] == named
    assert sum(bar.x[0] for bar in figure.data) == pytest.approx(10_000)
    assert figure.layout.annotations[0].text == f"<b>a step</b>{heading}"


def test_a_short_bars_last_piece_is_named_behind_it():
    long, short = ({"memory": part, "launch": 0} for part in (10, 4))
    figure = waiting_figure([Pass("long", 10, long, ""), Pass("short", 5, short, "9 GB/s"), PAD])
    assert [note.text for note in figure.layout.annotations[:3]] == ["<b>long</b>", "<b>short</b>", "the rest 20%"]
    assert [bar.text[1] for bar in figure.data[:2]] == ["reading 80%<br>at 9 GB/s", ""]
    assert figure.layout.annotations[-1].text == "<b>a prefill</b>, 10 times as long", "its rest is named above"


def test_an_accelerators_name_is_shown_as_text():
    figure = roofline_figure(FOUND, ("<a href=x>GPU", Roof(1e12, 1e14)))
    assert not any("<a href" in (trace.hovertemplate or "") for trace in figure.data)


def test_batches_are_named_by_what_they_gain_and_without_a_cache_by_what_the_roof_allows():
    figure = batch_figure({**FOUND, "outweighs": [{"tokens": 32, "batch": 100}, {"tokens": 64, "batch": 2}]})
    gains = [
        f"KV cache at {tokens}:<br>{ratio(line.y[-1] / line.y[0])} times one"
        for tokens, line in zip((32, 64), figure.data[:2], strict=True)
    ]
    most = {tokens: two_digits(max(rate for _, rate in row)) for tokens, row in uncached_rates(FOUND).items()}
    names = [*gains, *(f"no cache at {tokens}:<br>at most {most[tokens]}" for tokens in (32, 64))]
    assert [line.name for line in figure.data] == names
    assert {said.text for said in figure.layout.annotations} == set(names)


def test_without_a_cache_a_batch_gains_only_what_the_shared_weights_spare():
    rates = uncached_rates(FOUND)
    assert [batch for batch, _ in rates[64]] == [1, 2, 4]
    arithmetic, reading = 4 * 6.4e7 / 1e10, (4e5 + 4 * 6e5) / 1e9
    assert rates[64][-1][1] == pytest.approx(4 / max(arithmetic, reading)) and arithmetic > reading
    assert rates[32][-1][1] == pytest.approx(2 * rates[64][-1][1], rel=0.01), "twice the text, half the tokens a second"
    slow = uncached_rates({**FOUND, "roof": {"read": 1e8, "flops": 1e12}})
    assert slow[64][0][1] == pytest.approx(100) and slow[64][1][1] == pytest.approx(2 / 16e-3)


def test_a_profiles_bars_add_up_to_its_wall_time():
    classes = {"weights": 0.4, "attention": 0.1, "cache": 0.1, "other": 0.1, "call": 0.1, "gaps": 0.2}
    names = ("prefill", "decode", "2 sequences")
    profiles = [
        {"forward": name, "wall_s": n, "classes": {part: n * share for part, share in classes.items()}}
        for n, name in enumerate(names, 1)
    ]
    figure = profile_figure(profiles)
    assert [sum(bar.x[row] for bar in figure.data) for row in range(3)] == pytest.approx([3000, 2000, 1000])
    assert figure.data[0].y == ("decode step,<br>2 sequences", "decode step,<br>KV cache", "prefill"), "it is on top"


@pytest.mark.parametrize(("took", "told"), [(1.8, True), (1.2, False)])
def test_two_sequences_that_gain_little_over_one_are_told(took, told):
    step = {"phase": "decode", "tokens": 512, "s": 1.0, "tokens_per_s": 1.0, "batch": 1}
    two = {**step, "batch": 2, "s": took, "tokens_per_s": 2 / took}
    assert (slow_start([step, two]) is not None) == told
