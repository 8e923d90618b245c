"""What a recall measurement says: intervals, rows, the order of the designs."""

import pytest

from kvviz.charts.recall import recall_figure
from kvviz.experiments.recall.words import (
    at_budget,
    by_chance,
    claim,
    curves,
    groups,
    lettered,
    rows,
    seen_before,
    sentences,
    text,
    wilson,
)


def row(mode, percent, share, right):
    return {
        "mode": mode,
        "title": mode.upper(),
        "percent": percent,
        "nbytes": 1_000 * share,
        "share": share,
        "said": ["Lilly"] * 4,
        "right": right,
    }


FOUND = {
    "title": "a model",
    "tokens": 100.4,
    "questions": [{"seed": 1}, {"seed": 1}, {"seed": 2}, {"seed": 2}],
    "rows": [
        row("cached", None, 1.0, [True, True, True, False]),
        row("sinks", 50, 0.5, [True, False, True, False]),
        row("sinks", 25, 0.25, [False, False, True, False]),
        row("int4", None, 0.2, [True, True, True, False]),
        row("random", 25, 0.25, [False] * 4),
        row("random", 50, 0.5, [True, True, False, False]),
    ],
}


@pytest.mark.parametrize(
    ("right", "asked", "interval"),
    [(8, 10, (0.4902, 0.9433)), (0, 20, (0.0, 0.1611)), (20, 20, (0.8389, 1.0)), (81, 263, (0.2553, 0.3662))],
)
def test_the_interval_is_the_published_one(right, asked, interval):
    """The last row is Newcombe's example (1998, table I, method 3)."""
    assert wilson(right, asked) == pytest.approx(interval, abs=1e-4)


def test_rows_count_by_seed_and_curves_go_from_small_to_large():
    assert [(r["recalled"], r["asked"], r["by_seed"]) for r in rows(FOUND)[:3]] == [
        (3, 4, [2, 1]),
        (2, 4, [1, 1]),
        (1, 4, [0, 1]),
    ]
    assert {mode: [r["percent"] for r in points] for mode, points in curves(FOUND).items()} == {
        "sinks": [25, 50],
        "int4": [None],
        "random": [25, 50],
    }


def test_the_claim_holds_the_best_against_the_worst_at_a_quarter():
    assert claim(FOUND) == "With a quarter of the cache or less, “INT4” recalls 3 of 4 names, “SINKS” 1, “RANDOM” 0"
    alone = {**FOUND, "rows": FOUND["rows"][:2]}
    assert claim(alone) == "With 50 % of the cache or less, “SINKS” recalls 2 of 4 names, the full cache 3 of 4 names"
    assert claim({**FOUND, "rows": FOUND["rows"][:1]}).endswith("the full cache 3 of 4 names recalled")


def test_designs_are_told_apart_by_the_questions_that_one_alone_recalled():
    """Ten of ten such questions: by chance twice in 2^10. Equal numbers are never told apart, however many."""
    best, half, none = ({**row(mode, 25, 0.25, right), "recalled": sum(right)} for mode, right in [
        ("h2o", [True] * 20), ("tova", [True] * 17 + [False] * 3), ("random", [True] * 10 + [False] * 10)])  # fmt: skip
    assert by_chance(best, none) == by_chance(none, best) == 2 / 2**10 and by_chance(best, half) == 2 / 2**3
    assert by_chance(half, half) == 1.0
    assert [[r["mode"] for r in group] for group in groups([none, half, best])] == [["h2o", "tova"], ["random"]]
    found = {
        **FOUND,
        "questions": [{"seed": 1}] * 20,
        "rows": [FOUND["rows"][0] | {"right": [True] * 20}, best, half, none],
    }
    assert lettered(found) == {"h2o": "A", "tova": "A", "random": "B"}
    assert [line.name for line in recall_figure(found).data] == ["H2O (A)", "TOVA (A)", "RANDOM (B)"]
    assert sentences(found)[1] == "At 25 % of the tokens: “H2O” 20 ≈ “TOVA” 17; then “RANDOM” 10."
    assert sentences(found)[2].startswith("≈: these 20 questions don't tell a design apart")
    both = {**found, "before": [row("random", 25, 0.25, [True] * 20), row("tova", 25, 0.25, [True] * 18 + [False] * 2)]}
    assert [(a["mode"], a["recalled"], b["recalled"], apart) for a, b, apart in seen_before(both)] == [
        ("random", 10, 20, True), ("tova", 17, 18, False)]  # fmt: skip
    assert sentences(both)[-1] == (
        "Asked before the cache shrinks to 25 %: “RANDOM” 20 instead of 10, “TOVA” 18 instead of 17 (not told apart)."
    )


def test_the_sentences_count_names():
    said = sentences(FOUND)
    assert said[0].startswith("The full cache, 1000 B, recalls 3 of 4 names (75%)")
    assert said[1] == "At 25 % of the tokens: “SINKS” 1 ≈ “RANDOM” 0."
    assert said[-1] == "“INT4” recalls 3 with 20% of the bytes."
    assert [r["mode"] for r in at_budget(FOUND)] == ["sinks", "random"] and said[1] in text(FOUND)


def test_the_chart_has_a_line_a_design_and_the_full_cache_as_its_ceiling():
    figure = recall_figure(FOUND)
    assert [line.name for line in figure.data] == ["SINKS (A)", "INT4 (A)", "RANDOM (A)"]
    assert figure.layout.legend.title.text == "A letter in common: at 25 %, not told apart"
    sinks = figure.data[0]
    assert (list(sinks.x), list(sinks.y)) == ([25, 50], [25, 50])
    low, high = wilson(1, 4)
    assert (sinks.error_y.arrayminus[0], sinks.error_y.array[0]) == pytest.approx((25 - 100 * low, 100 * high - 25))
    assert figure.layout.shapes[0].y0 == 75 and "3 of 4" in figure.layout.annotations[0].text
