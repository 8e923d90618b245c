"""Much in one store: lists stay quick, a long run reads quickly. Laws and ratios first; the bounds are generous."""

import time

import pytest

from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.store.db.store import Store
from tests.store.db.conftest import keep, made_up


def fill(path, count):
    store = Store(path)
    _, document = made_up(steps=3)
    for number in range(count):
        spec = ComparisonSpec(model="gpt2" if number % 2 else "tiny-qwen3", prompt=f"prompt {number} " + "text " * 400)
        keep(store, f"c{number}", spec, document=document)
    return store


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    stores = [fill(folder / f"{count}.sqlite", count) for count in (25, 500)]
    yield stores
    for store in stores:
        store.close()


def quickest(call, times=7):
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


CALLS = {
    "list": (20, lambda store: store.find(limit=20)),
    "last page": (20, lambda store: store.find(limit=20, offset=store.count() - 20)),
    "count": (20, lambda store: store.count()),
    "search": (40, lambda store: store.find("prompt 24 ", limit=20)),  # it reads every row
    "count of a search": (40, lambda store: store.count("no such text")),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_many_comparisons_are_listed_quickly(stores, name):
    times, call = CALLS[name]
    for _ in range(3):  # a busy machine may disturb one try
        pairs = [[quickest(lambda store=store: call(store), 1) for store in stores] for _ in range(7)]
        small, large = (min(each) for each in zip(*pairs, strict=True))
        if large < times * small:
            return
    raise AssertionError(f"twenty times as many rows take {large / small:.0f} times as long")


@pytest.mark.slow
def test_a_list_reads_no_step(stores):
    _, large = stores
    assert large.count() == 500 and large.count("prompt 499") == 1
    assert [stored.id for stored in large.find(limit=2)] == ["c499", "c498"]


@pytest.fixture(scope="module")
def long_runs(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("long") / "kvviz.sqlite")
    for steps in (1000, 10_000):
        texts, document = made_up(steps=steps, repeats=5)
        keep(store, f"c{steps}", records=texts, document=document)
    yield store
    store.close()


@pytest.mark.slow
def test_a_run_of_ten_thousand_tokens_reads_quickly(long_runs):
    """Ten times as many tokens take at most twenty times as long; tried again where a busy machine disturbs it."""
    run = long_runs.run("c10000-cached")
    assert len(run.figures["token_ids"]) == 10_000 and [len(repeat) for repeat in run.repeats] == [10_000] * 5
    for _ in range(5):
        short, long = (quickest(lambda n=n: long_runs.run(f"c{n}-cached")) for n in (1000, 10_000))
        few, many = (quickest(lambda n=n: long_runs.document(f"c{n}")) for n in (1000, 10_000))
        listed = quickest(lambda: long_runs.get("c10000"))
        if long < 20 * short and many < 20 * few and listed < short:
            return
    raise AssertionError(f"run: {short:g} and {long:g} s; document: {few:g} and {many:g} s; its row: {listed:g} s")
