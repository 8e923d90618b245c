"""Workers on other machines: the link to them, what is given back when one is lost, and who may take part."""

import json
import os
import signal
import sys
import threading
from importlib.util import find_spec

import pytest

import kvviz
from kvviz.base.errors import KvvizError
from kvviz.cli.cluster import cluster as listing
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.sweep.spec import SweepSpec
from kvviz.models.sources import find_source
from kvviz.server.cluster import Cluster, listed
from kvviz.server.feed import Feed, Viewer
from kvviz.server.persister import Persister
from kvviz.server.remote import MachineLost, Relay, RemoteLink
from kvviz.server.scheduler import RESTARTS, Scheduler
from kvviz.server.worker_process import WorkerLink
from kvviz.store.db.store import Store
from tests.faults.conftest import fake_command, finished, until
from tests.server.test_several_workers import HELLO, Silent, asking, end

NODE = "gpu-2/cpu"


class Wire:
    """Calls a relay in this process; `cut` is what the loss of its machine looks like from here."""

    def __init__(self, relay):
        self.relay, self.lost = relay, ""

    def call(self, method, *args):
        answer = None if self.lost else getattr(self.relay, method)(*args)
        if self.lost:  # it may have been lost meanwhile, and its answer with it
            raise MachineLost(self.lost)
        return answer

    def send(self, method, *args):
        if not self.lost:
            getattr(self.relay, method)(*args)

    def cut(self):
        self.lost = "it does not answer any more"
        self.relay.close()


@pytest.fixture
def remote():
    """A scheduler with a silent worker of its own, and the link to a worker that has no model, on another machine."""
    wire = Wire(Relay(NODE, link=WorkerLink(fake_command)))
    scheduler = Scheduler(Silent(""))
    scheduler.join(RemoteLink(NODE, wire))
    until(lambda: scheduler.workers[1].state == "ready")
    yield scheduler, wire
    scheduler.close()
    wire.relay.close()


def ask(scheduler, prompt, device=NODE):
    return scheduler.submit(ComparisonSpec(model="tiny-gpt2", prompt=prompt, device=device))


@pytest.mark.worker
def test_a_worker_elsewhere_is_driven_like_one_beside_the_server(remote):
    scheduler, wire = remote
    assert finished(scheduler, ask(scheduler, "3 records")).state == "done"
    stopped, killed = ask(scheduler, "999 records"), ask(scheduler, "999 records")
    until(lambda: scheduler.get(stopped).state == "running")
    scheduler.stop(stopped)
    assert finished(scheduler, stopped).state == "stopped"
    until(lambda: scheduler.get(killed).state == "running")
    os.kill(wire.relay._link.process.pid, signal.SIGKILL)
    assert "it was killed" in finished(scheduler, killed).message, "a process that dies is no lost machine"
    assert finished(scheduler, ask(scheduler, "1 record")).state == "done"


@pytest.mark.worker
def test_a_run_begins_again_elsewhere_when_its_machine_is_lost(remote):
    scheduler, wire = remote
    scheduler.workers[0].worker_is("down")
    lost = ask(scheduler, "999 records", "auto")
    until(lambda: len(scheduler.get(lost).records) > 3)
    wire.cut()
    until(lambda: scheduler.get(lost).restarts == 1)
    assert [worker.name for worker in scheduler.workers] == [""]
    place, job = scheduler.place(lost), scheduler.get(lost)
    assert (job.state, job.records) == ("queued", [])
    why = "The machine gpu-2 was lost (it does not answer any more); this run begins again"
    assert place.words == f"{why}. Waiting for the device"
    scheduler.workers[0].received("-", "hello", json.dumps(HELLO))
    assert scheduler.workers[0].job is job
    end(scheduler.workers[0])
    assert (job.state, job.message) == ("done", "")


@pytest.fixture
def two():
    """A worker beside the server, and one on another machine, both silent and alike."""
    scheduler = Scheduler(Silent(""))
    scheduler.join(Silent(NODE))
    for worker in scheduler.workers:
        worker.received("-", "hello", json.dumps(HELLO))
    return scheduler


def begun(worker, records=3):
    """Let a worker send the first records of its job."""
    for _ in range(records):
        worker.received(worker.job.id, "pass", '{"t": "pass", "mode": "cached", "repeat": 0}')


def test_viewers_and_the_store_forget_what_a_lost_machine_had_measured(two, tmp_path):
    feed, store = Feed(two), Store(tmp_path / "kvviz.sqlite")
    persister = Persister(two, lambda: store)
    two.submit(asking(new_tokens=9))
    job = two.get(two.submit(asking()))
    begun(two.workers[1])
    viewer = Viewer(job.id)
    feed._viewers.add(viewer)
    feed._serve([viewer])
    persister.flush()
    assert viewer.have == 3 == len(store.records(job.id))
    two.workers[1].machine_lost("it burns")
    feed._serve([viewer])
    sent = [json.loads(viewer.outbox.get_nowait()) for _ in range(viewer.outbox.qsize())]
    assert [len(message["records"]) for message in sent[:-1]] == [3, 0] and sent[1]["whole"] is True
    assert "The machine gpu-2 was lost (it burns)" in sent[-1]["status"]["words"]
    end(two.workers[0])
    begun(two.workers[0], records=1)
    persister.flush()
    feed._serve([viewer])
    assert viewer.have == 1 == len(store.records(job.id))
    end(two.workers[0])
    persister.flush()
    assert store.get(job.id).state == "done" and len(store.records(job.id)) == len(job.records)
    store.close()


def test_who_asked_for_the_lost_machine_is_told(two):
    measured, waits, other = two.submit(asking(NODE)), two.submit(asking(NODE, 9)), two.submit(asking("auto", 10))
    begun(two.workers[1])
    two.workers[1].machine_lost("it burns")
    for job in (measured, waits):
        assert two.get(job).state == "failed" and "it burns); this run asked for it" in two.get(job).message
    assert two.get(other).active


def test_a_run_that_loses_every_machine_ends(two):
    two.submit(asking())
    job = two.get(two.submit(asking(new_tokens=9)))
    for _ in range(RESTARTS + 1):
        begun(two.workers[1])
        two.workers[1].machine_lost("it burns")
        two.join(Silent(NODE))
        two.workers[1].received("-", "hello", json.dumps(HELLO))
    assert job.state == "failed" and "it burns" in job.message


def test_another_machine_gets_no_key_and_is_told_which_weights(two):
    two.submit(asking())
    secret = two.submit(asking(new_tokens=9), key="sk-secret")
    assert two.ahead(secret) == 1, "it waits for the worker of this machine, though the other one is free"
    two.submit(ComparisonSpec(model="mini-gpt2", prompt="x"))
    (told,) = two.workers[1].link.told
    assert told["key"] is None and told["spec"]["weights"] == "bundled"
    two.workers[1].received(told["id"], "failed", '{"message": "there is no such model"}')
    assert two.get(told["id"]).message == "on gpu-2: there is no such model"
    two.submit(SweepSpec(models=("mini-gpt2", "mini-qwen3")))
    (_, told) = two.workers[1].link.told
    assert told["spec"]["weights"] == "bundled", "a sweep has several models"


MIXED = [
    SweepSpec(models=("mini-gpt2", "gpt2")),
    ComparisonSpec("mini-gpt2", prompt="x", modes=("cached", "speculative"), draft="gpt2"),
]


@pytest.mark.parametrize("spec", MIXED)
def test_a_run_with_two_kinds_of_weights_stays_on_this_machine(two, spec):
    two.submit(asking())
    waits = two.submit(spec)
    assert two.workers[1].job is None and two.ahead(waits) == 1
    end(two.workers[0])
    assert two.workers[0].job.id == waits and two.workers[0].link.told[-1]["spec"]["weights"] == "auto"


def test_a_model_that_is_deleted_while_its_run_waits_harms_no_worker(two, monkeypatch):
    first, other = (two.submit(asking(NODE, new_tokens=n)) for n in (8, 9))
    waits = two.submit(ComparisonSpec(model="mini-gpt2", prompt="x", device=NODE))

    def gone(model, weights="auto"):
        raise KvvizError(f"no model {model!r}")

    monkeypatch.setattr("kvviz.server.scheduler.find_source", gone)
    end(two.workers[1])
    end(two.workers[1])
    assert two.get(first).state == two.get(other).state == "done" and two.workers[1].job.id == waits
    assert two.workers[1].link.told[-1]["spec"]["weights"] == find_source("mini-gpt2").weights
    two.workers[1].received(waits, "failed", '{"message": "no such model"}')
    assert two.workers[1].ready


def test_shares_of_a_processor_elsewhere_share_its_memory():
    scheduler = Scheduler(Silent(""))
    for name in ("gpu-2/cpu:0", "gpu-2/cpu:1", "gpu-2/cuda:0", "gpu-3/cpu"):
        scheduler.join(Silent(name))
    shares = [scheduler.limits.memory_share / scheduler._limits_of(worker).memory_share for worker in scheduler.workers]
    assert shares == [1, 2, 2, 1, 1]


def test_a_link_that_fails_lets_its_worker_go():
    relay = Relay(NODE, link=Silent(NODE))
    scheduler, link = Scheduler(Silent("")), RemoteLink(NODE, Wire(relay))
    scheduler.join(link)
    job = scheduler.get(scheduler.submit(asking(NODE)))
    relay.worker_is("ready")
    relay.received("-", "hello", "this is no JSON")
    until(lambda: len(scheduler.workers) == 1)
    assert not link.up and not relay._link.up, "the worker there is ended"
    assert job.state == "failed" and "its link failed (JSONDecodeError)" in job.message


class FakeRay:
    """A cluster whose nodes the test makes up."""

    def __init__(self):
        self.living, self.brings, self.asked = ["one", "old"], {}, []

    def nodes(self):
        return [{"id": name, "name": name} for name in self.living]

    def offer_of(self, node):
        self.asked.append(node["name"])
        version = "0.0" if node["name"] == "old" else kvviz.__version__
        return {"version": version, "host": "", "devices": [], "workers": [("cpu", [0]), ("cuda:0", [1])]}

    def relay(self, node, name, cores):
        return Wire(Relay(name, cores, link=Silent(name)))

    def leave(self):
        self.living = []


def test_every_device_of_a_node_joins_and_another_version_does_not(monkeypatch):
    for name in ("WATCH_S", "AGAIN_S"):
        monkeypatch.setattr(f"kvviz.server.cluster.{name}", 0.02)
    ray, scheduler = FakeRay(), Scheduler(Silent(""))
    cluster = Cluster(scheduler, "10.0.0.1:6379", lambda address: ray)
    cluster.start()
    until(lambda: len(scheduler.workers) == 3 and "old" in ray.asked)
    assert [worker.name for worker in scheduler.workers] == ["", "one/cpu", "one/cuda:0"]
    kept, lost = scheduler.workers[1:]
    lost.machine_lost("its actor died")
    until(lambda: len(scheduler.workers) == 3 and lost not in scheduler.workers)
    assert scheduler.workers[1] is kept, "what is there is left alone"
    assert not any(worker.place == "old" for worker in scheduler.workers)
    cluster.close()
    scheduler.close()


def test_a_node_that_does_not_answer_keeps_no_other_waiting(monkeypatch):
    monkeypatch.setattr("kvviz.server.cluster.WATCH_S", 0.02)
    ray, scheduler, answers = FakeRay(), Scheduler(Silent("")), threading.Event()
    ray.living, brought = ["silent", "one"], ray.offer_of

    def offer_of(node):
        if node["name"] == "silent":
            answers.wait()
        return brought(node)

    ray.offer_of = offer_of
    cluster = Cluster(scheduler, "10.0.0.1:6379", lambda address: ray)
    cluster.start()
    until(lambda: len(scheduler.workers) == 3)
    assert ray.asked == ["one"]
    answers.set()
    until(lambda: len(scheduler.workers) == 5)
    assert ray.asked == ["one", "silent"], "each is asked once"
    cluster.close()
    scheduler.close()


def test_a_lost_connection_to_the_cluster_is_made_anew(monkeypatch, caplog):
    monkeypatch.setattr("kvviz.server.cluster.WATCH_S", 0.02)
    lost, found, left = FakeRay(), FakeRay(), []

    def nodes():
        raise RuntimeError("the head does not answer")

    def leave():
        left.append(lost)
        raise RuntimeError("it was never there")

    lost.nodes, lost.leave = nodes, leave
    joined = iter([lost, lost, found])
    scheduler = Scheduler(Silent(""))
    cluster = Cluster(scheduler, "10.0.0.1:6379", lambda address: next(joined))
    cluster.start()
    until(lambda: len(scheduler.workers) == 3)
    assert left == [lost] * 2
    assert caplog.text.count("the Ray cluster is lost (RuntimeError: the head does not answer)") == 1
    cluster.close()
    scheduler.close()


def test_each_row_of_the_list_has_the_same_fields(monkeypatch):
    ray = FakeRay()
    device = {"device": "cpu", "device_name": "A processor", "free_bytes": 8}

    def offer_of(node):
        if node["name"] == "old":
            raise MachineLost("it has no kvviz")
        return {"devices": [device]}

    ray.offer_of = offer_of
    monkeypatch.setattr("kvviz.server.cluster.Ray", lambda address: ray)
    assert listed("10.0.0.1:6379") == [
        {"node": "one", "device": "cpu", "name": "A processor", "free_bytes": 8, "why": None},
        {"node": "old", "device": None, "name": None, "free_bytes": None, "why": "it has no kvviz"},
    ]


def test_without_an_address_or_without_ray_the_command_says_so(monkeypatch):
    monkeypatch.delenv("KVVIZ_RAY_ADDRESS", raising=False)
    with pytest.raises(KvvizError, match="name the cluster: --address"):
        listing()
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(KvvizError, match=r"pip install 'kvviz\[cluster\]'"):
        listing("10.0.0.1:6379")


@pytest.mark.long
@pytest.mark.worker
@pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: pip install 'kvviz[cluster]'")
def test_two_nodes_of_a_real_cluster_measure_at_once_and_one_is_killed():
    from ray.cluster_utils import Cluster as Loopback

    loopback = Loopback(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = {name: loopback.add_node(num_cpus=1, node_name=name) for name in ("one", "two")}
    scheduler = Scheduler(Silent(""))
    cluster = Cluster(scheduler, loopback.address)
    cluster.start()
    try:
        until(lambda: [worker.state for worker in scheduler.workers[1:]] == ["ready"] * 2, 300)
        scheduler.workers[0].worker_is("down")
        long = [scheduler.submit(asking(new_tokens=n)) for n in (300, 301)]
        until(lambda: all(scheduler.get(job).state == "running" for job in long), 120)
        on = {scheduler.measured_on(scheduler.get(job)): job for job in long}
        assert set(on) == {"one/cpu", "two/cpu"}, "both at once"
        lost = scheduler.get(on["two/cpu"])
        until(lambda: len(lost.records) > 10, 120)
        loopback.remove_node(nodes["two"], allow_graceful=False)
        until(lambda: lost.restarts == 1, 120)
        assert "The machine two was lost" in scheduler.place(lost.id).words
        for job in long:
            until(lambda job=job: not scheduler.get(job).active, 600)
            assert scheduler.get(job).state == "done"
        assert lost.document["runs"][0]["token_ids"]
    finally:
        scheduler.close()
        cluster.close()
        loopback.shutdown()
