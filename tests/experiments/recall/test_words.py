"""What a recall measurement says: intervals, rows, the order of the designs."""

import pytest

from kvviz.charts.recall import CODES, EVICTS, bars_figure, recall_figure
from kvviz.experiments.recall.words import (
    at_budget,
    before_claim,
    by_chance,
    claim,
    comparable,
    curves,
    how_sure,
    lettered,
    letters,
    of_interval,
    of_rotation,
    rows,
    seen_before,
    sentences,
    text,
    unsteady,
    wilson,
)
from kvviz.ui.shared.experiment import recording


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
    "environment": {"dtype": "float32"},
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


@pytest.mark.parametrize(
    ("rotated", "plain", "words"),
    [
        (19, 20, "Here these questions do not tell whether it helps: 19 facts with it, 20 without (sign test)."),
        (20, 2, "Here it helps: 20 facts with it, 2 without (sign test)."),
        (2, 20, "Here it harms: 2 facts with it, 20 without (sign test)."),
    ],
)
def test_a_rotation_helps_only_where_the_questions_tell_it(rotated, plain, words):
    codes = [row(mode, None, 0.1, [i < n for i in range(20)]) for mode, n in (("int2", plain), ("rotated2", rotated))]
    found = {**FOUND, "questions": [{"seed": 1}] * 20, "rows": codes}
    assert of_rotation(found) == words
    assert of_rotation({**found, "rows": codes[:1]}) == ""


def test_the_claim_holds_the_best_against_the_worst_with_the_share_of_each():
    said = "“INT4” recalls 3 of 4 facts with 20% of a {} cache; “SINKS” recalls 1 with 25%"
    assert claim(FOUND) == said.format("float32")
    assert claim({**FOUND, "environment": {"dtype": "bfloat16"}}) == said.format("bfloat16")
    worse = [*FOUND["rows"][:3], row("int4", None, 0.2, [False] * 4)]
    assert claim({**FOUND, "rows": worse}).endswith("; “INT4” recalls 0 with 20%")
    alone = {**FOUND, "rows": FOUND["rows"][:2]}
    assert claim(alone, 50) == "“SINKS” recalls 2 of 4 facts with 50% of a float32 cache"
    assert claim({**FOUND, "rows": FOUND["rows"][:1]}).endswith("the full cache recalls 3 of 4 facts")


def test_designs_are_told_apart_by_the_questions_that_one_alone_recalled():
    """Ten of ten such questions: by chance twice in 2^10. Equal numbers are never told apart, however many."""
    best, half, none = ({**row(mode, 25, 0.25, right), "recalled": sum(right)} for mode, right in [
        ("h2o", [True] * 20), ("tova", [True] * 17 + [False] * 3), ("random", [True] * 10 + [False] * 10)])  # fmt: skip
    assert by_chance(best, none) == by_chance(none, best) == 2 / 2**10 and by_chance(best, half) == 2 / 2**3
    assert by_chance(half, half) == 1.0
    assert letters([none, half, best]) == {"h2o": "A", "tova": "A", "random": "B"}
    found = {
        **FOUND,
        "questions": [{"seed": 1, "text": number // 10} for number in range(20)],
        "rows": [FOUND["rows"][0] | {"right": [True] * 20}, best, half, none],
    }
    assert lettered(found) == {"h2o": "A", "tova": "A", "random": "B"}
    assert [line.name for line in recall_figure(found).data] == ["H2O", "TOVA", "RANDOM"]
    assert sentences(found)[1] == "At 25% of the tokens: “H2O” 20 (A), “TOVA” 17 (A), “RANDOM” 10 (B)."
    assert sentences(found)[2].startswith("A letter in common: these 20 questions don't tell the two apart")
    both = {**found, "before": [row("random", 25, 0.25, [True] * 20), row("tova", 25, 0.25, [True] * 18 + [False] * 2)]}
    assert [(a["mode"], a["recalled"], b["recalled"], apart) for a, b, apart in seen_before(both)] == [
        ("random", 10, 20, True), ("tova", 17, 18, False)]  # fmt: skip
    assert sentences(both)[-1] == (
        "Asked before the cache shrinks to 25%: “RANDOM” 20 instead of 10, “TOVA” 18 instead of 17 (unsure)."
    )
    assert before_claim(both).startswith(
        "of the 20 facts that were asked both ways, “RANDOM” recalls 20 if it reads the"
    )
    later = {**both, "questions": [{"seed": 1, "text": 0}] * 12 + [{"seed": 1, "text": 2}] * 8}
    cut = {**later, "before": [{**one, "right": one["right"][:12]} for one in both["before"]]}
    assert [(a["recalled"], b["recalled"], b["asked"]) for a, b, _ in seen_before(cut)] == [(10, 12, 12), (12, 12, 12)]


def test_a_design_between_two_others_shares_a_letter_with_each_that_it_ties_with():
    """The first and the last are told apart, the middle one from neither."""
    right = {"h2o": [True] * 12 + [False] * 8, "tova": [True] * 6 + [False] * 14, "random": [False] * 20}
    held = [{**row(mode, 25, 0.25, said), "recalled": sum(said)} for mode, said in right.items()]
    assert letters(held) == {"h2o": "A", "tova": "AB", "random": "B"}


def test_a_seed_that_orders_a_pair_otherwise_is_named():
    rows_ = [
        FOUND["rows"][0] | {"right": [True] * 20},
        row("h2o", 25, 0.25, [True] * 20),
        row("tova", 25, 0.25, [False] * 20),
    ]
    found = {**FOUND, "questions": [{"seed": 1}] * 10 + [{"seed": 2}] * 10, "rows": rows_}
    assert unsteady(found) == (1, [])
    assert how_sure(found) == (
        "Within one budget, 1 pair of designs differs by more than chance explains, and each of the 2 seeds, with "
        "texts of its own, orders every one the same way."
    )
    assert claim(found) == "“H2O” recalls all 20 facts with 25% of a float32 cache; “TOVA” recalls 0 with 25%"
    rows_[1:] = row("h2o", 25, 0.25, [True] * 19 + [False]), row("tova", 25, 0.25, [False] * 19 + [True])
    found["questions"] = [{"seed": 1}] * 19 + [{"seed": 2}]
    assert unsteady(found) == (1, [(25, "H2O", "TOVA")]) and "orders all but 1 the same way" in how_sure(found)
    assert "all but “H2O” and “TOVA” at 25%" in sentences(found)[3]


def test_the_kept_recording_orders_designs_alike_in_each_seed():
    found = recording("recall")["document"]
    full, *_ = rows(found)
    assert {kind for kind, (right, asked) in full["by_kind"].items() if right >= 0.9 * asked} == {"name", "number"}
    told, otherwise = unsteady(found)
    assert len({question["seed"] for question in found["questions"]}) == 3 and told > 50 and not otherwise


def test_the_sentences_count_facts():
    said = sentences(FOUND)
    assert said[0].startswith("The full cache, 1000 B, recalls 3 of 4 facts (3 of 4 names)")
    assert said[1] == "At 25% of the tokens: “INT4” 3 (A), “SINKS” 1 (A), “RANDOM” 0 (A)."
    assert said[-1] == "“INT4” recalls 3 with 20% of the bytes."
    assert [r["mode"] for r in at_budget(FOUND)] == ["sinks", "random"] and said[1] in text(FOUND)


def test_a_bar_is_a_design_within_the_budget_and_codes_that_fit_into_it():
    figure = bars_figure(FOUND, 25)
    (bars,) = figure.data
    assert (list(bars.y), list(bars.x)) == (["RANDOM", "SINKS", "INT4"], [0, 25, 75]), "the best on top"
    assert bars.marker.color[1:] == (EVICTS, CODES) and bars.marker.color[0] not in (EVICTS, CODES)
    beside = [[note.text for note in figure.layout.annotations if note.y == title] for title in bars.y]
    assert beside == [["0", "25%"], ["1", "25%"], ["3", "20%"]]
    assert figure.layout.shapes[0].x0 == 75, "the full cache"


def test_codes_that_do_not_fit_into_a_budget_are_left_out():
    fits = {percent: "int4" in {row["mode"] for row in comparable(FOUND, percent)} for percent in (10, 18, 19, 25)}
    assert fits == {10: False, 18: False, 19: True, 25: True}, "a tenth more than the budget still fits"


@pytest.mark.parametrize(
    ("texts", "end"),
    [
        ([(1, 0), (1, 0), (2, 0), (2, 0)], "counts the 4 facts as independent, though they come from 2 texts."),
        ([(1, 0)] * 3, "counts the 3 facts as independent, though they come from 1 text."),
        ([(1, 0), (1, 1), (2, 0)], "how far chance alone may move it."),
    ],
)
def test_the_interval_owns_up_that_facts_share_texts(texts, end):
    assert of_interval({"questions": [{"seed": seed, "text": text} for seed, text in texts]}).endswith(end)


def test_the_chart_has_a_line_a_design_and_the_full_cache_as_its_ceiling():
    figure = recall_figure(FOUND)
    assert [line.name for line in figure.data] == ["INT4", "SINKS", "RANDOM"]
    assert figure.layout.legend.title.text == "In order of recall at 25%"
    sinks = figure.data[1]
    assert (list(sinks.x), list(sinks.y)) == ([25, 50], [25, 50])
    low, high = wilson(1, 4)
    assert (sinks.error_y.arrayminus[0], sinks.error_y.array[0]) == pytest.approx((25 - 100 * low, 100 * high - 25))
    assert figure.layout.shapes[0].y0 == 75 and "3 of 4" in figure.layout.annotations[0].text
