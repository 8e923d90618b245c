"""The system's clock steps back: no order, no wait and no limit depends on it."""

import itertools
import time

import pytest

from kvviz.base.settings import Limits
from kvviz.store.db.store import Store
from tests.faults.conftest import asking, finished, until
from tests.store.db.conftest import keep

pytestmark = pytest.mark.worker


@pytest.fixture
def backwards(monkeypatch):
    """Each look at the clock finds it an hour earlier."""
    hours = itertools.count()
    monkeypatch.setattr(time, "time", lambda: 1_800_000_000 - 3600 * next(hours))


def test_works_keep_their_order_and_end(fake, backwards):
    scheduler = fake(limits=Limits(run_seconds=30))
    ids = [scheduler.submit(asking("10 records"), owner) for owner in ("a" * 22, "a" * 22, "b" * 22)]
    until(lambda: scheduler.get(ids[0]).state == "running")
    assert [scheduler.ahead(ids[0]), scheduler.ahead(ids[2]), scheduler.ahead(ids[1])] == [0, 1, 2]
    assert 0 <= scheduler.expected_wait(ids[2]) <= scheduler.expected_wait(ids[1])
    assert [finished(scheduler, own).state for own in ids] == ["done"] * 3


def test_the_list_stays_in_the_order_in_which_runs_were_begun(tmp_path, backwards):
    store = Store(tmp_path / "kvviz.sqlite")
    for name in "abc":
        keep(store, name)
    assert [stored.id for stored in store.find()] == ["c", "b", "a"]
    store.delete("a")
    keep(store, "d")
    assert [stored.id for stored in store.find()] == ["d", "c", "b"]
    store.close()
