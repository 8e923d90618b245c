"""The feed: deltas, catch-up, reconnection, and who may open a socket."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.server.feed import BACKLOG, LOOK_S, SEND_S, Feed, Viewer, encode, routes

SPEC = ComparisonSpec(model="tiny-gpt2", prompt="x")


@pytest.fixture
def client(scheduler_without_worker, tmp_path):
    feed = Feed(scheduler_without_worker)
    with TestClient(Starlette(routes=routes(feed, str(tmp_path), "/kv/assets"))) as client:
        client.feed, client.scheduler = feed, scheduler_without_worker
        yield client


def running(scheduler, count):
    comparison_id = scheduler.submit(SPEC)
    for i in range(count):
        scheduler.record(comparison_id, {"t": "proof", "i": i})
    return comparison_id


def in_a_loop(coroutine):
    """Run it in a thread of its own: the browser tests keep a loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, coroutine).result()


def receive(socket):
    """The next message with records."""
    while "records" not in (message := socket.receive_json()):
        pass
    return message


def test_late_joiners_catch_up_and_then_get_only_what_is_new(client):
    comparison_id = running(client.scheduler, 3)
    with client.websocket_connect(f"/kv/feed?comparison={comparison_id}") as socket:
        first = receive(socket)
        assert (first["comparison"], first["from"], len(first["records"])) == (comparison_id, 0, 3)
        client.scheduler.record(comparison_id, {"t": "proof", "i": 3})
        second = receive(socket)
        assert (second["from"], second["records"]) == (3, [{"t": "proof", "i": 3}])


def test_who_comes_back_gets_only_what_is_missing(client):
    comparison_id = running(client.scheduler, 5)
    with client.websocket_connect(f"/kv/feed?comparison={comparison_id}&had={comparison_id}&from=3") as socket:
        assert [r["i"] for r in receive(socket)["records"]] == [3, 4]


def test_who_follows_the_device_is_taken_to_the_next_comparison(client):
    first = running(client.scheduler, 2)
    with client.websocket_connect("/kv/feed") as socket:
        assert receive(socket)["comparison"] == first
        client.scheduler.record(first, {"t": "stopped"})
        assert receive(socket)["records"][0]["t"] == "stopped"
        second = running(client.scheduler, 1)
        message = receive(socket)
        assert (message["comparison"], message["from"]) == (second, 0)


def test_who_follows_the_device_sees_the_end_before_the_next_begins(scheduler_without_worker):
    """Both happen between two ticks: the first one's last records still go out, and go first."""
    feed, first = Feed(scheduler_without_worker), running(scheduler_without_worker, 2)
    viewer = Viewer(None)
    feed._serve([viewer])
    scheduler_without_worker.record(first, {"t": "stopped"})
    second = running(scheduler_without_worker, 1)
    feed._serve([viewer])
    messages = [json.loads(viewer.outbox.get_nowait()) for _ in range(3)]
    assert [(m["comparison"], m["from"]) for m in messages] == [(first, 0), (first, 2), (second, 0)]
    assert messages[1]["records"][-1]["t"] == "stopped"


def test_an_unknown_comparison_is_said_to_be_gone(client):
    with client.websocket_connect("/kv/feed?comparison=nope") as socket:
        assert socket.receive_json()["state"] == "none"


@pytest.mark.parametrize("query", ["from=-1", "from=abc", "from=99999999999999", "from=٣", "had=%00&from=2"])
def test_nonsense_in_the_query_counts_as_nothing(client, query):
    comparison_id = running(client.scheduler, 2)
    with client.websocket_connect(f"/kv/feed?{query}") as socket:
        assert len(receive(socket)["records"]) == 2
        assert client.scheduler.get(comparison_id) is not None


def test_what_viewers_send_is_dropped(client):
    comparison_id = running(client.scheduler, 1)
    with client.websocket_connect("/kv/feed") as socket:
        receive(socket)
        socket.send_text("{" * 10_000)
        socket.send_bytes(b"\xff\x00")
        client.scheduler.record(comparison_id, {"t": "proof", "i": 1})
        assert receive(socket)["from"] == 1


def test_a_viewer_that_leaves_is_forgotten(client):
    running(client.scheduler, 1)
    with client.websocket_connect("/kv/feed") as socket:
        receive(socket)
        assert client.get("/healthz").json()["viewers"] == 1
    assert client.get("/healthz").json()["viewers"] == 0


def test_a_slow_viewer_is_dropped_and_can_come_back(scheduler_without_worker):
    async def scene():
        feed, comparison_id = Feed(scheduler_without_worker), running(scheduler_without_worker, 1)
        slow = Viewer(comparison_id, comparison_id)
        feed.join(slow)
        for i in range(BACKLOG + 1):
            scheduler_without_worker.record(comparison_id, {"t": "proof", "i": i})
            feed._serve([slow])
        assert feed.viewers == 0 and slow.outbox.get_nowait() is None
        feed.close()

    in_a_loop(scene())


def test_what_is_new_is_soon_seen_and_updates_are_no_more_than_ten_a_second(scheduler_without_worker, monkeypatch):
    comparison_id = running(scheduler_without_worker, 1)
    pauses = []

    async def asleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 4:
            scheduler_without_worker.record(comparison_id, {"t": "proof", "i": 1})
        if len(pauses) == 6:
            feed.close()

    monkeypatch.setattr(asyncio, "sleep", asleep)
    feed = Feed(scheduler_without_worker)
    feed._viewers.add(Viewer(comparison_id))
    in_a_loop(feed._poll())
    assert pauses == [SEND_S, *[LOOK_S] * 3, SEND_S, LOOK_S]
    assert 5 * LOOK_S <= SEND_S


def test_one_encoding_for_all_viewers(scheduler_without_worker, monkeypatch):
    async def scene():
        feed, comparison_id = Feed(scheduler_without_worker), running(scheduler_without_worker, 2)
        viewers = [Viewer(comparison_id, comparison_id) for _ in range(30)]
        calls = []
        monkeypatch.setattr("kvviz.server.feed.encode", lambda *args: calls.append(args) or encode(*args))
        feed._serve(viewers)
        assert len(calls) == 1
        assert len({v.outbox.get_nowait() for v in viewers}) == 1

    in_a_loop(scene())


def test_a_record_that_comes_while_viewers_are_served_is_lost_for_none(scheduler_without_worker, monkeypatch):
    """The second viewer has one more to be sent than the first: not the first one's message, and nothing left out."""
    feed, comparison_id = Feed(scheduler_without_worker), running(scheduler_without_worker, 2)
    viewers = [Viewer(comparison_id, comparison_id) for _ in range(3)]

    def encode_as_another_comes(work, start, end, **more):
        text = encode(work, start, end, **more)
        if len(work.records) < 4:
            scheduler_without_worker.record(comparison_id, {"t": "proof", "i": len(work.records)})
        return text

    monkeypatch.setattr("kvviz.server.feed.encode", encode_as_another_comes)
    for _ in range(3):
        feed._serve(viewers)
    for viewer in viewers:
        messages = [json.loads(viewer.outbox.get_nowait()) for _ in range(viewer.outbox.qsize())]
        told = [record["i"] for message in messages for record in message.get("records", [])]
        assert told == [0, 1, 2, 3]


def test_what_a_step_costs_on_the_wire_does_not_grow(scheduler_without_worker):
    comparison_id = running(scheduler_without_worker, 1000)
    work = scheduler_without_worker.get(comparison_id)
    assert len(encode(work, 999, 1000)) < len(encode(work, 9, 10)) + 10
