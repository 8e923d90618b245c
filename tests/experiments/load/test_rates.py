"""The rates of a sweep, and when a queue grows without bound: laws, by the engine's scheduler on a clock of its own."""

import pytest

from kvviz.caches.layer_groups import LayerGroups
from kvviz.caches.swap import SwapSpace
from kvviz.experiments.batching.batcher import Batcher, Request
from kvviz.experiments.batching.policies import policy_named
from kvviz.experiments.batching.timeline import figures_of, serve, together
from kvviz.experiments.batching.trace import draw_trace
from kvviz.experiments.load.predicted_engine import PredictedEngine
from kvviz.experiments.load.rates import BLOCKS, growth, knee, next_rate, passes, planned
from kvviz.models.text import ByteCodec, Speller

PLACES, REQUESTS = 4, 48


def served(rate, seed):
    """Requests at a rate through an engine whose step takes a fixed time and some for each sequence and token."""
    trace = draw_trace(REQUESTS, 1.0, 96, seed)
    batcher = Batcher(SwapSpace(LayerGroups([None], 64, share=False), 0), policy_named("continuous"), PLACES)
    engine = PredictedEngine(batcher, lambda parts: 2 + 0.3 * len(parts) + 0.02 * sum(count for _, count in parts))
    sizes = zip(trace.arrivals_s, trace.prompts, trace.answers, strict=True)
    arrivals = [(at / rate, Request(i, (1,) * prompt, answer)) for i, (at, prompt, answer) in enumerate(sizes)]
    spell = Speller(ByteCodec(512))
    rows, steps, _ = together(serve(engine, arrivals, spell, clock=lambda: engine.now, sleep=engine.sleep))
    return REQUESTS / figures_of(rows)["seconds"], growth(steps, arrivals[-1][0], rate)


@pytest.mark.parametrize("seed", range(3))
def test_the_queue_grows_above_capacity_and_not_far_below_it(seed):
    capacity, _ = served(1e6, seed)
    assert not served(capacity / 3, seed)[1].unbounded
    above = served(2.5 * capacity, seed)[1]
    assert above.unbounded and above.per_s < above.rate
    assert served(5 * capacity, seed)[1].per_s > above.per_s


@pytest.mark.parametrize(
    ("waiting", "per_s", "unbounded"),
    [
        ([0] * BLOCKS, 0, False),
        ([9] * BLOCKS, 0, False),
        ([*range(BLOCKS)], 1, True),
        ([0, 9, *range(10, 16)], 1, True),  # while the places are filled, the queue tells nothing
        ([0, 0, 3, 0, 4, 0, 3, 1], 0, False),  # a busy moment
        ([0, 0, 0, 0.1, 0.2, 0.3, 0.4, 0.5], 0.1, False),  # too little of the rate
        ([0, 0, 7, 6, 5, 4, 3, 2], -1, False),
    ],
)
def test_a_queue_that_grows_in_proportion_to_time(waiting, per_s, unbounded):
    steps = {"began_s": range(BLOCKS), "ended_s": range(1, BLOCKS + 1), "waiting": waiting}
    found = growth(steps, BLOCKS, rate=10)
    assert found.unbounded is unbounded
    assert found.per_s == pytest.approx(per_s, abs=0.2)


@pytest.mark.parametrize("start", [10, 39, 200])
def test_rates_double_and_then_close_in_on_the_knee(start):
    limit, found = 40, []
    while (rate := next_rate(found, start, capacity=40)) is not None:
        found.append((rate, rate > limit))
    steady, growing = knee(found)
    assert steady <= limit < growing < 1.5 * steady and len(found) <= 7
    assert len({rate for rate, _ in found}) == len(found)


def test_a_queue_that_never_grows_ends_the_doubling():
    found = []
    while (rate := next_rate(found, 10, capacity=40)) is not None:
        found.append((rate, False))
    assert found[-1][0] >= 8 * 40 and knee(found) == (found[-1][0], None)


def test_the_plan_takes_the_widest_range_that_the_budget_allows():
    assert planned(capacity=60, most=160, least=64, budget_s=60) == (3, 160)
    assert planned(60, 160, 64, budget_s=30) == (2, int(30 * 60 / passes(2)))
    assert planned(60, 160, 64, budget_s=8) == (1, int(8 * 60 / passes(1))), "not enough for twice the least"
    assert planned(60, 160, 64, budget_s=3.3) == (0, 64), "the bisections are left out"
    assert planned(60, 160, 64, budget_s=3) is None
    for seconds in (4, 8, 16, 32, 64):
        halvings, count = planned(60, 120, 16, seconds)
        assert count / 60 * passes(halvings) <= seconds
