"""Many sequences in one memory: the allocators account for every slot, and the laws of each policy show."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.base.errors import KvvizError
from kvviz.caches.block_table import BLOCK
from kvviz.experiments.serving.arrivals import compare_policies
from kvviz.experiments.serving.policies import Arena, Growing, Paged
from kvviz.experiments.serving.spec import ArrivalsSpec
from tests.draws import draws

SPEC = ArrivalsSpec(requests=80, slots=1600)


@pytest.fixture(scope="module")
def ways():
    return {way["name"]: way for way in compare_policies(SPEC)["ways"]}


def rows_of(way):
    """A dict for each tick."""
    return [dict(zip(way["ticks"], row, strict=True)) for row in zip(*way["ticks"].values(), strict=True)]


@draws(60)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 12)), max_size=40))
def test_an_arena_never_gives_a_slot_twice(steps):
    arena, regions = Arena(40), []
    for gives_back, number in steps:
        if gives_back and regions:
            arena.give_back(*regions.pop(number % len(regions)))
        elif regions and number > 9:
            start, length = regions[number % len(regions)]
            if arena.extend(start, length, 2):
                regions[number % len(regions)] = (start, length + 2)
        else:
            start = arena.take(number)
            assert (start is None) == (arena.largest < number) or start is not None
            if start is not None:
                regions.append((start, number))
        slots = sorted(slot for start, length in [*regions, *arena.holes] for slot in range(start, start + length))
        assert slots == list(range(40)), "each slot is in one region or in one hole"
        ends = {start + length for start, length in arena.holes}
        assert not ends & {start for start, _ in arena.holes}, "holes that touch are one"


def test_the_smallest_hole_that_fits_is_taken():
    arena = Arena(20)
    starts = [arena.take(n) for n in (6, 2, 3, 2, 7)]
    arena.give_back(starts[0], 6)
    arena.give_back(starts[2], 3)
    assert arena.take(3) == starts[2] and arena.take(7) is None and arena.free == 6
    with pytest.raises(KvvizError, match="not all in use"):
        arena.give_back(0, 2)


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
