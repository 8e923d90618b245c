"""What the scheduler hears is kept half a second later, old runs are found again, a store that fails spoils nothing."""

import gzip
import json

import pytest

from kvviz.base.errors import KvvizError
from kvviz.experiments.comparison.figures import HEADLINE
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.sweep.spec import SweepSpec
from kvviz.server.jobs import mark_of
from kvviz.server.persister import Persister
from kvviz.store.db.store import Store
from kvviz.store.files.reading import Imported, read
from kvviz.ui.folders import ASSETS

RUN = dict.fromkeys(HEADLINE) | {
    "mode": "cached",
    "step_s": [0.1, 0.2],
    "step_s_q1": [0.1, 0.2],
    "step_s_q3": [0.1, 0.2],
    "token_ids": [1, 2],
    "cache_bytes": [8, 16],
    "allocated_bytes": [8, 16],
    "layers": [],
    "total_s": 0.3,
}


@pytest.fixture
def persister(scheduler_without_worker, store):
    return Persister(scheduler_without_worker, lambda: store)


def submit(scheduler, **fields):
    return scheduler.submit(ComparisonSpec(model="tiny-gpt2", prompt="x", **fields))


def test_a_run_is_written_as_it_goes(scheduler_without_worker, persister, store):
    own = submit(scheduler_without_worker)
    scheduler_without_worker.record(own, {"t": "loading"})
    persister.flush()
    assert [json.loads(text)["t"] for text in store.records(own)] == ["loading"]
    scheduler_without_worker.record(own, {"t": "pass", "mode": "cached", "repeat": 0})
    scheduler_without_worker.record(own, {"t": "times", "mode": "cached", "repeat": 0, "from": 0, "s": [0.1, 0.2]})
    scheduler_without_worker.record(own, {"t": "done", "document": {"model": "tiny-gpt2", "runs": [RUN]}})
    persister.flush()
    assert store.get(own).state == "done"
    assert store.run(f"{own}-cached").repeats == ((0.1, 0.2),)


def test_whose_a_run_is_is_kept_as_a_mark(scheduler_without_worker, persister, store):
    name = "a-browsers-secret-name"
    own = scheduler_without_worker.submit(ComparisonSpec(model="tiny-gpt2", prompt="x"), name)
    persister.flush()
    assert store.get(own).made_by == mark_of(name) == scheduler_without_worker.get(own).made_by
    store._database.close()
    assert not any(name.encode() in path.read_bytes() for path in store.path.parent.glob("runs.sqlite*"))
    scheduler_without_worker.record(own, {"t": "stopped"})
    persister.flush()
    assert persister.recall(own).made_by == mark_of(name)


def test_what_was_written_is_not_written_again(scheduler_without_worker, persister, store):
    own = submit(scheduler_without_worker)
    scheduler_without_worker.record(own, {"t": "loading"})
    for _ in range(3):
        persister.flush()
    assert len(store.records(own)) == 1


def test_a_run_of_an_earlier_server_opens_again(scheduler_without_worker, persister, store):
    store.begin("old", {"model": "tiny-gpt2"})
    store.append("old", ['{"t": "started", "id": "old"}'])
    store.finish("old", "done", {"model": "tiny-gpt2", "runs": [RUN]})
    scheduler_without_worker.keep_in(persister)
    work = scheduler_without_worker.get("old")
    assert work.state == "done" and json.loads(work.records[0])["t"] == "started"
    assert scheduler_without_worker.shown() is None, "who follows the device is not shown a run of another day"
    store.delete("old")
    assert scheduler_without_worker.get("unknown") is None


@pytest.mark.worker
def test_what_a_dead_server_left_is_called_interrupted(scheduler_without_worker, tmp_path):
    before = Store(tmp_path / "kept.sqlite")
    before.begin("cut", {"model": "tiny-gpt2"})
    before.append("cut", ['{"t": "started"}'])
    before.close()
    after = Store(tmp_path / "kept.sqlite")
    persister = Persister(scheduler_without_worker, lambda: after)
    persister.start()
    persister.close()
    assert after.get("cut").state == "interrupted"
    assert "middle of this run" in json.loads(persister.recall("cut").records[-1])["message"]


def test_a_store_that_fails_is_said_once_and_tried_again(scheduler_without_worker, store, caplog):
    broken = [True]

    def opened():
        if broken[0]:
            raise KvvizError("the disk is full")
        return store

    persister = Persister(scheduler_without_worker, opened)
    own = submit(scheduler_without_worker)
    persister.flush()
    persister.flush()
    assert persister.problem == "the disk is full" and caplog.text.count("store_failed") == 1
    broken[0] = False
    persister.flush()
    assert persister.problem == "" and store.get(own) is not None


def test_a_sweep_is_kept_under_its_name(scheduler_without_worker, persister, store):
    own = scheduler_without_worker.submit(SweepSpec(models=("tiny-gpt2",), preset="lab-01"))
    persister.flush()
    assert store.find() == [] and store.find(kind="sweep")[0].id == own
    assert "tiny-gpt2" in store.get(own).title
    assert scheduler_without_worker.shown() is None, "the live page shows comparisons"


def test_what_the_scheduler_has_forgotten_is_not_remembered(scheduler_without_worker, persister, store, monkeypatch):
    scheduler_without_worker.keep_in(persister)
    monkeypatch.setattr("kvviz.server.jobs.FINISHED_IN_MEMORY", 3)
    for _ in range(8):
        scheduler_without_worker.record(submit(scheduler_without_worker), {"t": "stopped"})
        persister.flush()
    assert store.count() == 8
    assert len(persister._written) <= 4 and len(persister._saved) <= 4


def test_a_file_that_was_opened_is_kept_whole_and_shown_to_whoever_opened_it_alone(
    scheduler_without_worker, persister, store
):
    opened = read(gzip.decompress((ASSETS / "live" / "h100-gpt2.json.gz").read_bytes()))
    own = scheduler_without_worker.adopt(opened)
    persister.flush()
    ids = [f"{own}-{run['mode']}" for run in opened.document["runs"]]
    assert [run["id"] for run in store.document(own)["runs"]] == ids
    assert [stored.id for stored in store.find()] == [own] and store.get(own).headline
    assert scheduler_without_worker.shown(own).id == own and scheduler_without_worker.shown() is None
    with pytest.raises(KvvizError, match="open it on the compare page"):
        scheduler_without_worker.adopt(Imported(opened.document, []))
