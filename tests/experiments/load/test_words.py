"""What a load sweep claims: sentences whose numbers are the document's."""

import pytest

from kvviz.experiments.load.words import (
    claim,
    early_wait,
    exact,
    latency_claim,
    sentences,
    step_error,
    steps_claim,
    within,
)


def point(rate, completed, waits, clean=True, **more):
    times = {"ttft_s_p50": 0.01, "ttft_s_p99": 0.02, "itl_s_p50": 0.003, "itl_s_p99": 0.004}
    usual = {"seconds": len(waits) / completed, "unbounded": False, "per_s": 0.0, "within": 0.0, "predicted": None}
    return {"rate": rate, "completed_per_s": completed, "waits": waits, "clean": clean, **times, **usual, **more}


QUICK, SLOW = [(0.1, 0.01)] * 4, [(0.1, 0.01), (0.1, 0.05), (0.9, None), (0.1, None)]
GREW = {"unbounded": True, "per_s": 18.0, "within": 3.0}
STEPS = [{"running": 1, "s": 0.002}, {"running": 2, "s": 0.0022}, {"running": 8, "s": 0.005}]
FOUND = {
    "spec": {"seconds": 20},
    "rows": [point(10, 10, QUICK), point(40, 30, SLOW, **GREW, predicted={"completed_per_s": 36.0})],
    "at_once": point(None, 32, SLOW, clean=False),
    "knee": {"steady": 10, "growing": 40},
    "steps": STEPS,
    "steps_missed": -0.25,
    "free_up_to": 2,
    "outweighs": {"tokens": 85, "weight_bytes": 4 * 2**20, "cache_bytes": 2**19, "batch": 9},
    "short": False,
}


LIMITS = "keep to your limits (the first token within 200 ms, then at most 20 ms between tokens)"


def test_the_title_is_what_the_engine_completes():
    assert claim(FOUND) == "About 30 requests a second, then only the waiting grows"
    assert early_wait(FOUND) == ""
    level, grown = point(10, 10, QUICK), point(40, 30, SLOW, **GREW)
    late = {**FOUND, "rows": [level, point(20, 20, SLOW), grown]}
    grows = "About 30 requests a second, then only the waiting grows"
    assert claim(late) == f"{grows}; the slowest wait longer already at 20"
    assert early_wait(late) == (
        "**The slowest wait first**: at 20 requests a second the queue stays level, but the first token's slowest is "
        "900 ms, not 100 ms as at 10."
    )
    calm = {**FOUND, "rows": [point(10, 9.87, QUICK, clean=False)]}
    assert claim(calm) == ("≈ 9.9 requests a second or more: no rate was surely too high")


@pytest.mark.parametrize(("rate", "says"), [(156.0, "156"), (1234.5, "1,230"), (0.25, "0.25"), (40, "40")])
def test_an_offered_rate_keeps_a_third_digit(rate, says):
    assert exact(rate) == says


@pytest.mark.parametrize(
    ("ttft", "itl", "says"),
    [
        (0.2, 0.02, f"At most 15 requests a second {LIMITS}, with 40 offered, where the queue grows."),
        (0.05, 0.02, "At no rate does a request keep to your limits (the first token within 50 ms"),
    ],
)
def test_the_goodput_is_read_off_at_the_limits(ttft, itl, says):
    assert within(FOUND, ttft, itl).startswith(says)


def test_a_goodput_is_certain_only_where_the_queue_is_known_not_to_grow():
    slow, fast = point(10, 9.87, QUICK), point(40, 37.43, QUICK, per_s=1.0, within=9.0)
    may_grow = f"At most 37 requests a second {LIMITS}, with 40 offered, where the queue may grow."
    assert within({**FOUND, "rows": [slow, fast]}, 0.2, 0.02).startswith(may_grow)
    level = within({**FOUND, "rows": [slow, {**fast, "within": 0.0}]}, 0.2, 0.02)
    assert level == f"At most 37 requests a second {LIMITS}, with 40 offered."
    few = [(0.9, 0.05)] * 3 + [(0.1, 0.01)]
    past = within({**FOUND, "rows": [slow, point(80, 20, few, **GREW)]}, 0.2, 0.02)
    assert past == f"At most 9.9 requests a second {LIMITS}, with 10 offered; with 80 offered, only 5 do."


def test_a_latency_is_told_from_the_lowest_rate_to_the_highest():
    assert latency_claim(FOUND, "ttft") == "TTFT, slowest: 100 ms at 10/s, 900 ms at 40/s"
    assert latency_claim(FOUND, "itl") == "A request's mean ITL, slowest: 10 ms at 10/s, 50 ms at 40/s"
    assert latency_claim({"rows": FOUND["rows"][:1]}, "itl") == "A request's mean ITL"


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        (STEPS, "A step of 8 sequences takes 2.5 times as long as one of 1, and makes 8 times the tokens"),
        (STEPS[:1], "The time of a decode step"),
    ],
)
def test_a_step_of_many_sequences_is_held_against_that_of_the_fewest(steps, says):
    found = {"steps": steps, "steps_clean": True}
    assert steps_claim(found) == says
    assert ("≈ " in steps_claim({**found, "steps_clean": False})) == bool(steps[1:])


@pytest.mark.parametrize(
    ("error", "says"),
    [(-0.25, "25% shorter than"), (0.1, "10% longer than"), (0.001, "as long as those measured"), (None, "")],
)
def test_the_prediction_says_how_far_it_is_off(error, says):
    said = step_error({"steps_missed": error, "steps": []})
    assert says in said and bool(said) is bool(says)


def test_the_error_of_the_steps_is_told_from_least_to_most():
    steps = [{"running": n, "s": 0.002, "predicted_s": 0.002 * by} for n, by in ((1, 1.3), (8, 0.87), (16, 0.7))]
    assert step_error({"steps_missed": -0.13, "steps": steps}) == (
        "The cost model's steps are 13% shorter than those measured, in the median: from 30% shorter than measured for "
        "16 sequences to 30% longer than measured for 1 sequence."
    )


def test_the_sentences_are_those_of_the_sweep():
    queue, foretold, free, heavy = sentences(FOUND)
    assert (
        "stays level up to 10 requests a second and grows throughout the run from 40 on; at the rates between," in queue
    )
    assert "has 36 requests/s completed where 30 were, 20% too many" in foretold
    assert "free** up to 2 sequences: a step takes at most 1.25 times as long as that of 1 sequence" in free
    assert "a step of 9 sequences or more reads more of caches than of weights (4.0 MiB of weights, 512.0 KiB" in heavy
    steady = [point(10, 10, QUICK), point(20, 20, QUICK)]
    bare = {**FOUND, "rows": steady, "knee": {"steady": 20, "growing": None}, "steps": [], "outweighs": None}
    queue, waits = sentences({**bare, "short": True})
    assert "stays level up to 20 requests a second. The" in queue and queue.endswith(
        "The 20 s were used up before the knee was found more closely."
    )
    assert waits.startswith("**Waiting**, from 10 requests/s to 20 requests/s")
