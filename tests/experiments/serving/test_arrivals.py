"""Many sequences in one memory: the allocators account for every slot, and the laws of each policy show."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.caches.block_table import BLOCK
from kvviz.experiments.serving.arrivals import compare_policies
from kvviz.experiments.serving.policies import Batched, Growing, Paged, Reserved
from kvviz.experiments.serving.spec import ArrivalsSpec, Request
from tests.draws import draws

SPEC = ArrivalsSpec(requests=80, slots=1600)


@pytest.fixture(scope="module")
def ways():
    return {way["name"]: way for way in compare_policies(SPEC)["ways"]}


def rows_of(way):
    """A dict for each tick."""
    return [dict(zip(way["ticks"], row, strict=True)) for row in zip(*way["ticks"].values(), strict=True)]


@draws(60)
@given(st.lists(st.tuples(st.sampled_from(("admit", "grow", "release")), st.integers(0, 99)), max_size=40))
def test_no_slot_is_ever_in_two_regions(steps):
    memory, requests = Growing(160, 64), []
    for action, number in steps:
        if action == "admit" or not requests:
            request = Request(len(steps) + number + 100 * len(requests), 0, 1, ())
            if request.number not in memory.regions and memory.admit(request, 1 + number % 40):
                requests.append(request)
        elif action == "grow":
            memory.grow(requests[number % len(requests)])
        else:
            memory.release(requests.pop(number % len(requests)))
        places = [*memory.regions.values(), *memory.holes]
        assert sorted(slot for start, length in places for slot in range(start, start + length)) == list(range(160))
        ends = {start + length for start, length in memory.holes}
        assert not ends & {start for start, _ in memory.holes}, "holes that touch are one"
        assert all(memory.lengths[request.number] <= memory.regions[request.number][1] for request in requests)


def test_the_smallest_hole_that_fits_is_taken():
    memory = Reserved(20, 4)
    memory.regions = {1: (6, 2), 2: (11, 2)}
    assert memory.holes == [(0, 6), (8, 3), (13, 7)]
    assert [memory.find(length) for length in (3, 4, 7, 8)] == [8, 0, 13, None]


def test_every_request_is_served_and_every_slot_accounted_for(ways):
    requests = SPEC.draw()
    assert len({request.arrives for request in requests}) > 20 and len({len(r.ids) for r in requests}) > 20
    for way in ways.values():
        assert way["ticks"]["running"][-1] == way["ticks"]["used"][-1] == 0
        for row in rows_of(way):
            assert row["used"] + row["internal"] + row["external"] + row["free"] == SPEC.slots
            assert min(row.values()) >= 0


def test_the_same_seed_is_the_same_trace():
    assert SPEC.draw() == replace(SPEC).draw() != replace(SPEC, seed=1).draw()


def test_a_reservation_wastes_inside_and_is_never_preempted(ways):
    way = ways["reserved"]
    assert way["preempted"] == way["moved_tokens"] == 0
    assert way["most_running"] == SPEC.slots // SPEC.longest == 6
    assert way["internal_share_while_some_wait"] > 0.4


def test_blocks_waste_less_than_one_each_and_nothing_between(ways):
    for row in rows_of(ways["paged"]):
        assert row["external"] == 0 and row["internal"] <= (BLOCK - 1) * row["running"]


def test_more_sequences_fit_in_blocks(ways):
    fit = {name: way["mean_running_while_some_wait"] for name, way in ways.items()}
    assert fit["prefix"] > fit["paged"] > 1.5 * fit["reserved"] and fit["paged"] > fit["growing"]
    assert ways["paged"]["ended_at_tick"] < ways["reserved"]["ended_at_tick"]


def test_nobody_joins_a_static_batch_and_continuous_batching_is_done_earlier(ways):
    memory, (a, b, c) = Batched(64, 16), (Request(number, 0, 1, ()) for number in range(3))
    assert memory.admit(a, 1) and memory.admit(b, 1), "before its first step anybody may join"
    memory.grow(a)
    assert not memory.admit(c, 1)
    memory.release(a)
    assert not memory.admit(c, 1), "a place that falls free stays empty"
    memory.release(b)
    assert memory.admit(c, 1)
    assert ways["batched"]["ended_at_tick"] > 1.2 * ways["reserved"]["ended_at_tick"]
    assert ways["batched"]["preempted"] == 0


def test_growing_in_one_piece_moves_tokens_and_leaves_holes(ways):
    assert ways["growing"]["moved_tokens"] > 0 == ways["paged"]["moved_tokens"]
    assert ways["growing"]["external_share_while_some_wait"] > 0


def test_who_lets_more_in_has_to_preempt(ways):
    assert ways["paged"]["preempted"] > 0 and ways["paged"]["recomputed_tokens"] > 0
    roomy = compare_policies(ArrivalsSpec(requests=20, slots=4096, longest=128), (Paged, Growing))
    assert [way["preempted"] for way in roomy["ways"]] == [0, 0]
    assert [way["mean_running_while_some_wait"] for way in roomy["ways"]] == [None, None]


def test_shared_beginnings_are_found_and_at_last_overwritten(ways):
    assert ways["prefix"]["found_tokens"] >= SPEC.SHARED * (SPEC.requests - SPEC.SYSTEMS) // 2
    assert ways["prefix"]["evicted_blocks"] > 0 == ways["paged"]["evicted_blocks"]
