"""The figures of a load sweep, each by hand."""

import pytest

from kvviz.experiments.load.figures import (
    by_running,
    decided,
    free_up_to,
    goodput,
    mean_context,
    missed,
    wait_s,
    waits,
)


def row(arrival, *tokens, state="done"):
    return {"state": state, "arrival_s": arrival, "token_s": list(tokens)}


def test_a_request_waits_for_its_first_token_and_then_between_them():
    rows = [row(1.0, 1.5, 1.6, 1.9), row(2.0, 2.25), row(0.0, state="refused")]
    assert waits(rows) == [(0.5, 0.2), (0.25, None)]


@pytest.mark.parametrize(("ttft", "itl", "good"), [(1, 1, 3), (0.4, 1, 2), (1, 0.15, 2), (0.4, 0.15, 1), (0.1, 1, 0)])
def test_goodput_counts_the_requests_that_keep_to_both_limits(ttft, itl, good):
    point = {"seconds": 2.0, "waits": [(0.5, 0.1), (0.4, 0.2), (0.3, None)]}
    assert goodput(point, ttft, itl) == good / 2


def test_a_percentile_is_one_of_the_requests_waits():
    point = {"waits": [(0.5, 0.1), (0.4, 0.2), (0.3, None)]}
    assert [wait_s(point, name, 50) for name in ("ttft", "itl")] == [0.4, 0.1] and wait_s(point, "itl", 99) == 0.2
    assert wait_s({"waits": [(0.3, None)]}, "itl", 99) is None


@pytest.mark.parametrize(
    ("points", "knee"),
    [
        ([(10, 0, 0.5, False), (20, 0, 4, False), (40, 9, 3, True)], (10, 40, (10, 40))),
        ([(10, 0, 3, False), (20, 0, 0, False), (40, 9, 3, True)], (None, 40, (10, 40))),
        ([(10, 0, 0, False), (20, -9, 8, False)], (20, None, None)),
        ([(10, 9, 3, True)], (None, 10, None)),
        ([], (None, None, None)),
    ],
)
def test_between_a_level_queue_and_a_growing_one_it_is_undecided(points, knee):
    names = ("rate", "per_s", "within", "unbounded")
    assert decided([dict(zip(names, point, strict=True)) for point in points]) == knee


def test_the_mean_context_is_that_of_the_decode_steps():
    assert mean_context([10], [3]) == 12, "steps at 11 and 12 tokens: 11.5, to the even one"
    assert mean_context([10, 1], [1, 4]) == round((2 + 3 + 4) / 3)
    assert mean_context([10], [1]) == 2


def test_only_pure_decode_steps_are_counted_by_their_sequences():
    steps = {
        "began_s": [0, 1, 2, 3, 4, 5],
        "ended_s": [0.1, 1.2, 2.3, 3.4, 4.9, 5.5],
        "running": [1, 1, 1, 2, 2, 2],
        "computed": [1, 1, 1, 2, 9, 2],
    }
    (found,) = by_running([steps])
    assert (found["running"], found["steps"], found["s"]) == (1, 3, pytest.approx(0.2))
    assert [each["steps"] for each in by_running([steps, steps])] == [6, 4]


@pytest.mark.parametrize(
    ("seconds", "free"), [([1, 1.1, 1.2], 3), ([1, 1.1, 1.3, 1.2], 2), ([1, 2, 1], 1), ([2.0], 1), ([], None)]
)
def test_decoding_is_free_until_a_step_takes_longer(seconds, free):
    assert free_up_to([{"running": n, "s": s} for n, s in enumerate(seconds, 1)]) == free


def test_a_prediction_is_held_against_what_was_measured():
    assert missed([(1.1, 1.0), (0.5, 1.0), (1.0, 1.0), (None, 3.0)]) == 0
    assert missed([(3.0, 2.0)]) == 0.5 and missed([(None, 1.0)]) is None
