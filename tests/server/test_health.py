"""What a server says of itself to whoever watches over it."""

import json

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

import kvviz
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.server.feed import Feed, routes
from kvviz.server.persister import Persister


@pytest.fixture
def ask(scheduler_without_worker, tmp_path):
    """`ask(problem)` is the answer of a server whose store has that problem."""

    def ask(problem=""):
        archive = Persister(scheduler_without_worker)
        archive.problem = problem
        scheduler_without_worker.keep_in(archive)
        feed = Feed(scheduler_without_worker)
        return TestClient(Starlette(routes=routes(feed, str(tmp_path), "/kv/assets"))).get("/healthz")

    return ask


def test_a_server_that_works(ask, scheduler_without_worker):
    scheduler_without_worker.submit(ComparisonSpec(model="tiny-gpt2", prompt="secret"))
    answer = ask()
    told = answer.json()
    assert (answer.status_code, told["status"], told["reason"]) == (200, "ok", None)
    assert (told["worker"], told["device"], told["queue"], told["viewers"]) == ("ready", "a test's device", 1, 0)
    assert told["version"] == kvviz.__version__ and told["uptime_s"] >= 0
    assert TestClient(Starlette(routes=routes(Feed(scheduler_without_worker), ".", "/x"))).get(
        "/kv/health"
    ).json().keys() == (told.keys()), "its earlier address"
    assert "secret" not in answer.text and answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("state", ["starting", "restarting"])
def test_a_worker_that_is_on_its_way_is_no_reason_to_restart_the_server(ask, scheduler_without_worker, state):
    scheduler_without_worker.worker.state, scheduler_without_worker.worker.device = state, None
    answer = ask()
    assert (answer.status_code, answer.json()["worker"], answer.json()["device"]) == (200, state, None)


@pytest.mark.parametrize(("state", "says"), [("down", "does not start"), ("off", "starting or leaving")])
def test_a_server_without_a_worker_is_degraded(ask, scheduler_without_worker, state, says):
    scheduler_without_worker.worker.state = state
    answer = ask()
    assert (answer.status_code, answer.json()["status"]) == (503, "degraded")
    assert says in answer.json()["reason"]


def test_a_store_that_can_not_be_written_degrades_without_its_path(ask):
    answer = ask("/home/someone/kvviz.sqlite may be read but not written")
    assert (answer.status_code, answer.json()["status"]) == (503, "degraded")
    assert "not being kept" in answer.json()["reason"] and "/home" not in json.dumps(answer.json())
