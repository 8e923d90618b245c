"""The bench of several workers: the same jobs in both orders, and each worker's share of them."""

import pytest

from bench.devices import measure


@pytest.mark.long
@pytest.mark.worker
def test_both_orders_measure_the_same_jobs():
    found = measure(("cpu:0", "cpu:1"), "tiny-gpt2", new_tokens=8, jobs=4, rounds=1)
    assert [worker["name"] for worker in found["workers"]] == ["cpu:0", "cpu:1"]
    assert sum(found["on"].values()) == 2 * found["jobs"] and set(found["on"]) == {"cpu:0", "cpu:1"}
    assert all(worker["cached_itl_s"]["all at once"] > 0 for worker in found["workers"])
    first, second = found["seconds"].values()
    assert found["times_as_fast"] == first / second > 0
