"""The expected speed-up of speculation: its formula, the share of tried proposals, its words."""

import pytest

from kvviz.experiments.comparison.comparison_run import Checked, ComparisonRun
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.comparison.speculated import expected, formula_explained, speculated, speedup_formula
from kvviz.experiments.comparison.verdict import judge

STEP = 0.01  # seconds
USUAL = {"mode": "cached", "step_s": [0.05, *[STEP] * 30], "steps": None}
UNUSED = (0, 0, 0.0, 1.0)  # the row of no proposals


def run(rows, *, accepted, tried, mode="speculative", step_s=STEP / 2):
    """A kept run whose forwards are `rows`: (proposals, forwards, steps that drafting takes, steps of the forward)."""
    verified = [
        {"proposals": count, "forwards": forwards, "draft_s": draft * STEP, "forward_s": steps * STEP}
        for count, forwards, draft, steps in rows
    ]
    counts = {"accepted": accepted, "tried": tried, "drafted": 40, "steps": 11, "verified": verified, "usual_s": STEP}
    return {"mode": mode, "step_s": [0.05, *[step_s] * 30], **counts}


def test_the_formula_is_the_published_one_where_a_forward_of_several_tokens_takes_one_step():
    found = expected(run([(4, 10, 0.4, 1)], accepted=24, tried=30), USUAL)
    assert found.tokens == pytest.approx((1 - 0.8**5) / (1 - 0.8))
    assert found.speedup == pytest.approx((1 - 0.8**5) / ((1 - 0.8) * (4 * 0.1 + 1)))
    assert found.measured == pytest.approx(2)


def test_a_dearer_forward_makes_it_less_and_both_are_said():
    each = run([(4, 10, 0.4, 1.6)], accepted=24, tried=30)
    found = judge(10, [USUAL, each])
    (entry,) = found["expected"]
    assert entry["speedup"] == pytest.approx(3.3616 / (0.4 + 1.6))
    assert "Of the 30 that were tried, 80% were accepted" in found["speculation"][0]
    assert "1.7 times as fast, 16% less than measured" in found["speculation"][0]
    assert r"\frac{1 - 0.8^{4 + 1}}{(1 - 0.8)(4 \cdot 0.1 + 1.6)} = 1.68" in speedup_formula(entry)
    words = formula_explained(entry)
    assert "Measured: 2; the formula says 16% less" in words and "that would be 2.4." in words


def test_proposals_of_several_lengths_are_a_mean():
    rows = [(0, 6, 0.1, 1), (8, 4, 0.1, 2)]
    found = expected(run(rows, accepted=5, tried=5, mode="lookup"), None)
    assert found.tokens == pytest.approx((6 * 1 + 4 * 9) / 10), "all are accepted"
    assert found.speedup == pytest.approx(4.2 / (0.1 + 1.4)) and found.measured is None
    assert r"\frac{4.2}{3.2 \cdot 0.031 + 1.4}" in speedup_formula(vars(found))
    assert "overlined" in formula_explained(vars(found))


def test_nothing_is_expected_of_what_was_not_clocked():
    for kept in (
        run([], accepted=0, tried=0),
        {**run([(4, 10, 0.4, 1)], accepted=0, tried=0), "verified": None},
    ):
        assert expected(kept, USUAL) is None
        assert "formula" not in speculated(kept, USUAL)


def test_what_follows_a_rejected_proposal_was_not_tried():
    """2 and 3 are accepted, 4 is rejected, its successor not tried; whether the last one stands nobody asked."""
    run = ComparisonRun(ComparisonSpec("mini-gpt2", prompt="x", modes=("lookup",)), loaded=None, prompt=None)
    tokens, proposed = [1, 2, 3, 9, 5], [(), (2, 3, 4, 5), None, None, (5,)]
    run.checked["lookup"] = Checked(tokens=[[token] for token in tokens], proposed=proposed)
    found = run.speculation("lookup")
    assert (found["accepted"], found["tried"], found["drafted"], found["steps"]) == (2, 3, 5, 3)
