"""What a recall measurement says: intervals, rows, the order of the designs."""

import pytest

from kvviz.charts.recall import recall_figure
from kvviz.experiments.recall.words import at_budget, claim, curves, rows, sentences, stable, text, wilson


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


def test_seeds_that_contradict_one_another_are_told():
    assert stable(FOUND, 25) and not stable(FOUND, 50)
    said = sentences(FOUND)
    assert said[0].startswith("The full cache, 1000 B, recalls 3 of 4 names (75%)")
    assert said[1] == "At 25 % of the tokens: “SINKS” 1, “RANDOM” 0; all seeds put them in this order."
    assert said[2].endswith("“SINKS” 2, “RANDOM” 2; the seeds differ in the order.")
    assert said[3] == "“INT4” recalls 3 with 20% of the bytes."
    assert [r["mode"] for r in at_budget(FOUND)] == ["sinks", "random"] and said[1] in text(FOUND)


def test_the_chart_has_a_line_a_design_and_the_full_cache_as_its_ceiling():
    figure = recall_figure(FOUND)
    assert [line.name for line in figure.data] == ["SINKS", "INT4", "RANDOM"]
    sinks = figure.data[0]
    assert (list(sinks.x), list(sinks.y)) == ([25, 50], [25, 50])
    low, high = wilson(1, 4)
    assert (sinks.error_y.arrayminus[0], sinks.error_y.array[0]) == pytest.approx((25 - 100 * low, 100 * high - 25))
    assert figure.layout.shapes[0].y0 == 75 and "3 of 4" in figure.layout.annotations[0].text
