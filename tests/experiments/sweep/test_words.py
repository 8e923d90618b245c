"""What is flat, what climbs: worked out from rows, here and in a published table; the report as text."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.experiments.shapes import SURE
from kvviz.experiments.sweep.plan import preset_spec
from kvviz.experiments.sweep.rows import document, rows
from kvviz.experiments.sweep.spec import PRESETS, SweepSpec
from kvviz.experiments.sweep.words import (
    Trend,
    at_points,
    beside,
    caveats,
    claim,
    contrasts,
    falls,
    findings,
    first_tokens,
    gain,
    passes,
    reason,
    reasons,
    shown,
    sweep_text,
    table,
    trends,
)
from kvviz.models.catalog.rows import Published
from kvviz.models.sources import find_source
from tests.draws import draws
from tests.experiments.sweep.test_spec import proof, timed
from tests.experiments.test_shapes import slow_slope


def row(mode, prompt, **figures):
    work = {"model": "m", "dtype": "float32", "mode": mode, "prompt_tokens": prompt, "new_tokens": 8, "batch": 1}
    return {**work, **figures}


PROMPTS = (64, 128, 256, 512)
ROWS = [
    row("uncached", 64, itl_s=0.002, total_s=1.0),
    row("cached", 64, itl_s=0.001, total_s=0.5, speedup=2.0),
    row("uncached", 128, itl_s=0.008, total_s=4.0),
    row("cached", 128, itl_s=0.0011, total_s=0.5, speedup=8.0),
]


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ((1.0, 1.0), "near"),  # two points have no interval
        ((1.0, 1.01, 1.02), "flat"),
        ((1.0, 1.1, 1.24), "near"),
        ((1.0, 2.0, 3.0), "climbs"),
        ((3.0, 2.0, 1.0), "falls"),
        ((1.0, 9.0, 1.1), "wavers"),
    ],
)
def test_the_word_for_a_change(values, word):
    assert Trend("m", "cached", "", "batch", (1, 2, 3)[: len(values)], "itl_s", values).word == word


def test_what_is_flat_and_what_climbs():
    assert findings(ROWS) == [
        "No cache, from a prompt of 64 tokens to 128: time per token climbs to 4 times (2 ms to 8 ms).",
        "KV cache, from a prompt of 64 tokens to 128: time per token stays within 10% (1 ms to 1.1 ms); "
        "speed-up climbs to 4 times (2.0× to 8.0×).",
    ]
    swapped = [{**r, "itl_s": 0.01 / r["itl_s"]} for r in ROWS]
    assert "time per token falls to 1/4" in findings(swapped)[0], "the words follow the rows"


def test_the_claim_of_a_chart_names_each_mode_and_its_change():
    assert claim(ROWS, "itl_s", "prompt_tokens") == (
        "From a prompt of 64 tokens to 128, the time per token climbs to 4 times without the cache and stays within "
        "10% with it"
    )
    third = [{**r, "mode": "compiled", "itl_s": 1 / r["itl_s"]} for r in ROWS if r["mode"] == "uncached"]
    assert "without the cache, stays within 10% with it and falls to 1/4 in mode “Compiled”" in claim(
        [*ROWS, *third], "itl_s", "prompt_tokens"
    )
    assert claim(ROWS, "itl_s", "batch") == "" == claim(ROWS[:2], "itl_s", "prompt_tokens")
    assert claim([*ROWS, *({**r, "batch": 2} for r in ROWS)], "itl_s", "prompt_tokens") == "", "more varies"


AGAIN = (
    "Without the cache each step computes the whole text again; with it only the first step computes the prompt, and "
    "every later one a single token."
)


@pytest.mark.parametrize(
    ("first", "whole", "told"),
    [(0.6, 1.0, " Most of the climb with the cache is the first token (TTFT)."), (0.4, 1.0, ""), (0.6, 0.0, "")],
)
def test_why_a_generation_grows_is_said_by_what_each_step_computes(first, whole, told):
    end = {"ttft_s": 1 + first, "total_s": 2 + whole}
    rows = [{**r, "ttft_s": 1.0, "total_s": 2.0, **(end if r["prompt_tokens"] == 128 else {})} for r in ROWS]
    assert reason(rows, "prompt_tokens") == f"{AGAIN}{told}"
    assert reason(rows, "batch") == "" == reason(rows[1::2], "prompt_tokens")


def test_an_axis_is_a_table_from_which_its_speed_up_follows():
    seconds = {
        ("uncached", 64): (0.003, 0.0029, 0.18908),
        ("cached", 64): (0.0026, 0.000627, 0.0421),
        ("uncached", 128): (0.0044, 0.0047, 0.3032),
        ("cached", 128): (0.0046, 0.00065, 0.0457),
        ("uncached", 512): (0.0177, 0.01851, 1.18154),
        ("cached", 512): (0.0175, 0.000684, 0.06064),
    }
    names = ("ttft_s", "itl_mean_s", "total_s")
    rows = [
        row(mode, prompt, new_tokens=64, repeats=3, **dict(zip(names, times, strict=True)))
        for (mode, prompt), times in seconds.items()
    ]
    rows = [{**r, "speedup": seconds["uncached", r["prompt_tokens"]][2] / r["total_s"]} for r in rows]
    assert [line.replace("\u00a0", " ") for line in at_points(rows, "prompt_tokens").splitlines()] == [
        "| Prompt | Tokens computed | TTFT, ms | Later token, ms | Whole generation, ms | Speed-up |",
        "| --: | --: | --: | --: | --: | --: |",
        "| 64 | 6,112 → 127 | 3.0 → 2.6 | 2.90 → 0.63 | 189.1 → 42.1 | **4.5×** |",
        "| 128 | 10,208 → 191 | 4.4 → 4.6 | 4.70 → 0.65 | 303.2 → 45.7 | **6.6×** |",
        "| 512 | 34,784 → 575 | 17.7 → 17.5 | 18.51 → 0.68 | 1,181.5 → 60.6 | **19×** |",
    ]
    assert sum(range(128, 192)) == 10_208
    assert at_points(rows, "batch") == "" == at_points(rows[:2], "prompt_tokens") == at_points(rows, "model")
    alone = at_points([r for r in rows if r["mode"] == "uncached"], "prompt_tokens").splitlines()[2]
    assert alone == "| 64 | 6,112 | 3.0 | 2.9 | 189 |"
    assert first_tokens(rows) == (
        "For the first token both compute the same prompt, yet TTFT differs by up to 15%: a difference of this size "
        "may be noise."
    )
    assert first_tokens(rows[2:]) == "" == first_tokens(rows[::2]), "4.7% is little, and one mode has no other"
    busy = at_points([{**r, "disturbed": 3} for r in rows], "prompt_tokens")
    assert "| ≈ 17.7\u00a0→\u00a0≈ 17.5 |" in busy
    work = [{**row(mode, prompt), "flops": 2e9 * prompt} for prompt in (64, 512) for mode in ("uncached", "cached")]
    assert at_points(work, "prompt_tokens").splitlines()[-1].endswith(" | 1,024\u00a0→\u00a01,024 |")
    many = [row("cached", prompt) for prompt in range(1, 9)]
    assert [line[:4] for line in at_points(many, "prompt_tokens").splitlines()[2:]] == ["| 1 ", "| 8 "]


def test_a_gain_is_said_at_both_ends_of_its_axis():
    said = "The cache makes generation 2.0 times as fast at a prompt of 64 tokens, 8.0 times at 128"
    assert gain(ROWS, "prompt_tokens") == said
    assert gain([{**r, "repeats": 1, "disturbed": 1} for r in ROWS], "prompt_tokens").startswith(
        "The cache makes generation ≈ 2.0 "
    )
    assert gain(ROWS, "batch") == "" == gain([r for r in ROWS if r["mode"] == "uncached"], "prompt_tokens")


def test_what_was_measured_beside_other_work_says_so_and_is_never_flat():
    level = [row("cached", prompt, itl_s=0.001, peak_bytes=5, repeats=2, disturbed=2) for prompt in PROMPTS]
    assert {t.figure: t.factor for t in trends(level)} == {
        "itl_s": "stays within ≈ 0%",
        "peak_bytes": "stays flat within 0%",
    }
    steep = [{**r, "itl_s": r["prompt_tokens"]} for r in level]
    assert "climbs to ≈ 8 times" in claim(steep, "itl_s", "prompt_tokens")
    assert "≈" not in claim([{**r, "disturbed": 1} for r in steep], "itl_s", "prompt_tokens")


def test_other_axes_are_held_and_models_named():
    rows = [{**r, "batch": batch, "model": f"m{batch}"} for r in ROWS for batch in (1, 2)]
    heads = [sentence.split(":")[0] for sentence in findings(rows)]
    assert "m1, No cache, batch 1, from a prompt of 64 tokens to 128" in heads and len(heads) == 4
    assert findings(ROWS[:2]) == [] and findings([]) == []


def test_a_figure_that_is_missing_has_no_trend():
    rows = [row("cached", 64, itl_s=None, peak_bytes=0), row("cached", 128, itl_s=1.0, peak_bytes=5)]
    assert trends(rows) == []


def test_the_published_table_beside_ours():
    published = Published("n", ({"mode": "cached", "prompt_tokens": 64, "new_tokens": 8, "total_s": 9.0},))
    (pair,) = beside(ROWS, published)
    assert pair["total_s"] == 9.0 and pair["here"]["total_s"] == 0.5
    (lone,) = beside(ROWS[2:], published)
    assert lone["here"] is None


def climbing(steep, noise=(1.0,) * 4, mode="uncached"):
    return [row(mode, prompt, total_s=n * prompt**steep) for prompt, n in zip(PROMPTS, noise, strict=True)]


@pytest.mark.parametrize(
    ("here", "there", "said"),
    [
        (climbing(1.0), climbing(1.0), "It has the published shape: it goes as the prompt to the power 1.00 ± 0.00 "),
        (
            climbing(1.0),
            climbing(1.3),
            "The shapes differ: it goes as the prompt to the power 1.00 ± 0.00 here and 1.30",
        ),
        (
            climbing(0),
            climbing(0, (1, 1.01, 0.99, 1)),
            "It has the published shape: it goes as the prompt to the power",
        ),
        (
            climbing(1.0),
            climbing(1.0, (1, 2, 0.5, 1)),
            "These points can't tell whether it has the published shape: it",
        ),
        (climbing(1.0)[:2], climbing(1.0)[:2], "Fewer than three points can't tell a shape."),
    ],
)
def test_the_published_shape_needs_powers_that_agree(here, there, said):
    (sentence,) = contrasts(here, Published("n", tuple(there)))
    assert f" in the published table. {said}" in sentence
    assert contrasts([], Published("n", tuple(there))) == []
    longer = (*there, row("uncached", 4096, total_s=9.0))
    assert contrasts(here, Published("n", longer)) == [sentence], "only what both have is compared"


@draws(40)
@given(*(st.lists(st.floats(0.5, 2), min_size=4, max_size=4) for _ in range(2)), st.sampled_from((0.0, 0.3, 1.0)))
def test_random_tables_are_said_to_go_alike_as_a_slow_reading_finds(one, other, steep):
    here, there = climbing(1.0, one), climbing(1.0 + steep, other)
    (sentence,) = contrasts(here, Published("n", tuple(there)))
    (a, h), (b, k) = (slow_slope(np.log(PROMPTS), np.log([r["total_s"] for r in rows])) for rows in (here, there))
    apart, sure = abs(a - b) - h - k, SURE - h - k
    if min(abs(apart), abs(sure)) > 1e-3:
        said = "The shapes differ" if apart > 0 else "It has the" if sure > 0 else "These points can't tell"
        assert f"table. {said}" in sentence
        figures = re.search(r"power (\S+) ± (\S+) here and (\S+) ± (\S+) in", sentence).groups()
        assert list(map(float, figures)) == pytest.approx([a, h, b, k], abs=0.006)  # they are rounded


def test_few_repeats_and_other_tokens_are_said():
    good = {"repeats": 3, "identical": True, "repeatable": True}
    assert caveats([good]) == []
    assert "Fewer than 3 repeats" in caveats([{**good, "repeats": 1}])[0]
    assert caveats([good, {**good, "identical": False}]) == ["1 of 2 rows did not choose the reference's tokens."]
    busy, partly = {**good, "disturbed": good["repeats"]}, {**good, "disturbed": 1}
    assert caveats([good, partly, busy]) == ["≈: other work on the machine disturbed every pass of 1 of 3 rows."]
    assert [passes(row) for row in (good, partly, busy)] == ["3", "3, 1 disturbed", "≈ 3, all disturbed"]


def test_figures_have_units():
    assert [shown("itl_s", 0.00123), shown("total_s", 2.5), shown("peak_bytes", 2048), shown("speedup", None)] == [
        "1.23 ms",
        "2.5 s",
        "2.0 KiB",
        "–",
    ]


def test_what_a_step_is_spent_with():
    source, slow = find_source("gpt2"), {"read": 2e10, "flops": 8e10, "launch": 2e-6}
    said = reasons(source, "float32", (1, 576), slow)
    assert said.endswith("gpt2 is here mostly reading the weights over 1 token, mostly computing over 576 tokens.")
    small = reasons(find_source("mini-gpt"), "float32", (1, 58), slow)
    assert small.endswith("over 58 tokens. By that estimate its time hardly depends on the number of tokens.")
    fast = {"read": 2e12, "flops": 5e14, "launch": 5e-6}
    assert reasons(source, "float32", (1, 520), fast).count("launching operations") == 2, "flat: bound by launches"
    assert "launching" not in reasons(source, "float32", (1, 520), fast, fastest=1e-5), "no launches outlast a step"


def test_a_table_is_aligned():
    text = table(
        [{"mode": "cached", "n": "1"}, {"mode": "x", "n": "1000"}],
        [("mode", lambda r: r["mode"]), ("n", lambda r: r["n"])],
    )
    assert text == "mode       n\ncached     1\nx       1000"


def test_the_report_of_a_preset():
    spec = preset_spec("lab-01", models=("tiny-gpt2",))
    records = [
        {
            "t": "sweep_started",
            "id": "s",
            "environment": {"device_name": "a device", "threads": 2, "torch": "2"},
            "rates": {"read": 2e10, "flops": 8e10, "launch": 2e-6},
        }
    ]
    for cell in range(4):
        records += [proof(spec, cell), timed(cell, "uncached", 0, [0.01 * (cell + 1)] * 64)]
        records += [timed(cell, "cached", 0, [0.01] * 64)]
    records.append({"t": "cell_failed", "cell": 2, "message": "it broke"})
    text = sweep_text(document(records, spec))
    assert PRESETS["lab-01"].title in text and "a device, 2 threads" in text
    assert "RTX 4090, one pass of a small model" in text and "46.9×" in text
    assert "KV cache, from a prompt of 64 tokens to 512: time per token stays flat within " in text
    assert "256 + 64 tokens: it broke" in text
    assert "the whole time climbs to 4 times (640 ms to 2.56 s) here, and climbs to 14.2 times (" in text


def test_a_row_leaves_disturbed_passes_out():
    spec = SweepSpec(models=("tiny-gpt2",), prompt_tokens=(4,), new_tokens=(2,), modes=("uncached", "cached"))
    clean = [timed(0, "uncached", n, [1.0, 1.0]) for n in range(2)]
    noisy = {**timed(0, "uncached", 2, [9.0, 9.0]), "clean": False}
    found = next(row for row in rows([proof(spec, 0), *clean, noisy], spec) if row["mode"] == "uncached")
    assert (found["total_s"], found["repeats"], found["disturbed"]) == (2.0, 3, 1)
    only = next(row for row in rows([proof(spec, 0), noisy], spec) if row["mode"] == "uncached")
    assert (only["total_s"], only["repeats"], only["disturbed"]) == (18.0, 1, 1)


@pytest.mark.parametrize(
    ("shorter", "longer", "words"),
    [
        ((3.0, 2.9, 3.1), (3.2, 3.1, 3.3), []),
        ((3.0, 2.8, 3.1), (2.9, 2.7, 3.0), ["within the spread of its steps (their quartiles overlap)"]),
        ((3.0, 2.9, 3.1), (2.5, 2.4, 2.6), ["why was not measured"]),
        ((3.0, None, None), (2.5, None, None), ["why was not measured"]),
    ],
)
def test_a_later_token_that_falls_is_said_with_what_the_spread_can_tell(shorter, longer, words):
    rows = [
        {"mode": "cached", "prompt_tokens": prompt}
        | {name: ms and ms / 1000 for name, ms in zip(("itl_mean_s", "itl_s_q1", "itl_s_q3"), each, strict=True)}
        for prompt, each in ((64, shorter), (1024, longer))
    ]
    said = [f"A later token with the cache takes less at 1,024 than at 64: {why}." for why in words]
    assert falls(rows, "prompt_tokens") == said
    assert falls(rows, "batch") == []
