"""A store of runs that is empty at first."""

import pytest

from kvviz.store.db.store import Store


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "runs.sqlite")
    yield store
    store.close()
