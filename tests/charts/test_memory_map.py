"""The map of a shared memory: every slot drawn once, filled where the allocator says so."""

import re

import pytest

from kvviz.charts.memory_map import WIDE, followed, memory_map
from kvviz.experiments.serving.arrivals import compare_policies
from kvviz.experiments.serving.policies import POLICIES
from kvviz.experiments.serving.spec import ArrivalsSpec

SPEC = ArrivalsSpec(requests=30, rate=2.0, slots=1_000 // 16 * 16, longest=128, seed=1)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_every_slot_is_drawn_once_as_the_policy_counts_them(policy):
    (way,) = compare_policies(SPEC, (policy,))["ways"]
    for number, picture in enumerate(way["pictures"], 1):
        drawn = memory_map(picture, SPEC.slots)
        slots = dict.fromkeys(("full", "empty", "free", "shared", "kept", "none"), 0)
        for state, count in re.findall(r'<i class="kvm-(\w+)" style="flex:(\d+) 0 0">', drawn):
            slots[state] += int(count)
        counted = {name: column[number * way["stride"] - 1] for name, column in way["ticks"].items()}
        assert slots["full"] + slots["shared"] == counted["used"]
        assert slots["empty"] == counted["internal"]
        assert sum(slots.values()) - slots["none"] == SPEC.slots
        assert drawn.count("kvm-row") == -(-SPEC.slots // WIDE)


def test_one_request_is_followed_through_both_memories():
    regions = {"kind": "regions", "regions": [[3, 0, 32, 20], [4, 32, 32, 9]]}
    tables = [[3, [2, 0], 20], [4, [1], 9], [5, [3, 4, 5], 48]]
    blocks = {"kind": "blocks", "block": 16, "findable": [], "tables": tables}
    assert followed(regions, blocks) == (3, 2), "request 5 lies in one of them only"
    assert [memory_map(each, 96, 3).count("kvm-followed") for each in (regions, blocks)] == [1, 2]
    assert followed(regions, None) is followed({**regions, "regions": []}, blocks) is None


def test_a_memory_in_which_nothing_runs_any_more_is_free():
    assert "kvm-piece" not in memory_map(None, 512) and memory_map(None, 512).count("kvm-row") == 2
