"""The shorthand's figures to the digit, and where the full count parts from it."""

import pytest

from kvviz.base.errors import ConfigError, KvvizError
from kvviz.cost.flops import prefill, square_equals_linear, total_flops
from kvviz.cost.roofline import DECODE, PREFILL, Place, Roof, work_of
from kvviz.cost.shape import read_shape
from kvviz.cost.shorthand import (
    PRESETS,
    Case,
    bend,
    config_of,
    from_params,
    full,
    plain,
    questions,
    run_flops,
    run_time,
    saving,
    shape_of,
    to_params,
)
from kvviz.memory.calculator import pack
from kvviz.models.catalog.rows import model_row


def test_the_classroom_case():
    case = Case(prompt=8, new=20, width=64, layers=2, dtype="float32")
    assert (case.linear, case.square, case.uncached, case.cached) == (655_360, 819_200, 1_474_560, 114_688)
    assert case.ratio == pytest.approx(12.857, abs=1e-3)
    assert f"{case.ratio:.0f}" == "13"
    assert case.cache_bytes == 27_648 == 2 * 2 * (8 + 20 - 1) * 64 * 4
    assert sum(case.read_uncached) == sum(tokens for _, tokens, _ in case.steps())
    assert case.steps()[:3] == [(0, 8, 8 * 4096), (1, 9, 9 * 4096), (2, 10, 10 * 4096)]
    assert len(case.steps()) == 20 and case.steps()[-1][1] == 27


def test_a_long_prompt_makes_the_linear_term_the_larger_one():
    case = PRESETS["A long prompt, d = 4,096"]
    assert (case.prompt, case.new, case.width) == (1024, 200, 4096)
    assert case.linear / case.square == case.linear_over_square == 10.24
    assert "the linear term is 10.24 times the quadratic one" in questions(case)[3][1]
    assert "the quadratic term is 1.25 times the linear one" in questions(Case())[3][1]


def test_gpt_3s_cache_is_9_7_gb_in_powers_of_1000():
    case = PRESETS["GPT-3's cache"]
    assert case.cache_bytes == 9_658_957_824 == 9 * 2**30 * 2047 // 2048
    assert f"{case.cache_bytes / 1e9:.1f}" == "9.7"


def test_the_square_overtakes_at_six_times_the_width():
    assert plain(768, 12).overtakes == 4608
    count = plain(768, 12)
    for n, sign in ((4607, -1), (4608, 0), (4609, 1)):
        step = count.uncached(n)
        gap = step["attention"] - step["projections"] - step["mlp"]
        assert (gap > 0) - (gap < 0) == sign
    gpt2 = read_shape(model_row("gpt2").config)
    assert square_equals_linear(gpt2) == 4608 > gpt2.spec.context


def test_a_plain_layer_is_gpt_2s_without_its_head():
    shape = read_shape(model_row("gpt2").config)
    head = 2 * 768 * 50257
    assert sum(plain(768, 12).uncached(100).values()) == total_flops(shape, prefill(shape, 100)) - head


def test_256_times_is_about_100_all_counted():
    for width, ratio in ((4096, 96.3), (64, 103.0)):
        assert saving(Case(prompt=128, new=128, width=width)) == pytest.approx(ratio, abs=0.05)
    claim, counted = questions(PRESETS["128 + 128 tokens"])[1]
    assert "256 times" in claim and "96.3×" in counted


def test_a_run_is_the_sum_of_its_steps():
    count = plain(64, 2)
    prefill_alone = (sum(count.uncached(5).values()),)
    assert run_flops(Case(prompt=5, new=1)) == (prefill_alone, prefill_alone)
    without, within = run_flops(Case(prompt=5, new=3))
    assert without[0] == within[0] == prefill_alone[0]
    assert without[-1] == sum(sum(count.uncached(n).values()) for n in (5, 6, 7))
    assert within[-1] == prefill_alone[0] + sum(sum(count.cached(n).values()) for n in (6, 7))


def test_a_cached_step_is_nearly_constant():
    counted = questions(Case(prompt=512, new=512, width=768, layers=12, model="gpt2"))[2][1]
    assert counted == "Nearly: it still scans the cache. From 513 to 1,023 tokens it grows by 7.07%."
    assert "attention" not in full(Case(model="mamba-130m")).uncached(9)
    assert "never the larger part" in questions(Case(model="mamba-130m"))[0][1]


def test_a_case_goes_into_a_link_and_back():
    case = Case(prompt=100, new=50, width=128, layers=3, dtype="float16", model="gpt2")
    assert from_params(to_params(case)) == (case, [])
    assert to_params(Case()) == {"model": ""} and from_params({"model": ""}) == (Case(), [])
    for name, text in (("prompt", "x"), ("new", "99999999"), ("dtype", "int3"), ("model", "nope"), ("width", "0")):
        found, problems = from_params({name: text, "layers": "7"})
        assert found == Case(layers=7) and len(problems) == 1 and problems[0].startswith(f"The link's {name}: ")


def test_bad_cases_are_refused():
    with pytest.raises(ConfigError, match="this page goes up to 4,096"):
        Case(new=5000)
    with pytest.raises(KvvizError, match="no model"):
        config_of("nope")
    with pytest.raises(KvvizError, match="can't count"):
        full(Case(model=pack({"model_type": "jetmoe", "num_hidden_layers": 4})))


@pytest.mark.parametrize(
    ("sums", "times"),
    [([7, 8, 9], 1), ([5, 6, 7, 8, 9], 1), ([n * n for n in range(101)], 3), ([3], 1), ([3, 4], 1)],
)
def test_the_bend_of_a_total_is_one_for_a_line_and_three_for_a_square(sums, times):
    assert bend(sums) == pytest.approx(times, rel=0.02)


def test_the_least_time_is_divided_by_what_each_forward_waits_for():
    case, roof = Case(model="llama-3.1-8b", prompt=300, new=150), Roof(3.35e12, 9.9e14)
    took, shape = run_time(case, "bfloat16", roof), shape_of(case.model)
    lengths = range(case.prompt, case.prompt + case.new)
    works = [work_of(shape, Place(PREFILL, tokens), "bfloat16") for tokens in lengths]
    assert sum(took.uncached.values()) == pytest.approx(sum(map(roof.least, works)))
    waiting = [work["flops"] / roof.flops for work in works if work["flops"] / roof.flops > work["bytes"] / roof.read]
    assert 0 < len(waiting) < len(works) and took.uncached["arithmetic"] == pytest.approx(sum(waiting))
    weights = sum(work["weight_bytes"] for work in works) / roof.read
    assert took.hidden + took.uncached["weights"] == pytest.approx(weights), "what it reads is waited for or hidden"
    computed = sum(work["flops"] for work in works) / roof.flops
    assert took.covered + took.uncached["arithmetic"] == pytest.approx(computed), "and so is what it computes"
    steps = [work_of(shape, Place(DECODE, tokens), "bfloat16") for tokens in lengths[1:]]
    read = sum(work["weight_bytes"] for work in (works[0], *steps))
    assert took.cached["weights"] == pytest.approx(read / roof.read), "its prefill is short, too"
    assert took.cached["arithmetic"] == 0
    assert took.gain == pytest.approx(sum(took.uncached.values()) / sum(took.cached.values()))
