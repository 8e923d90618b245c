"""vLLM's KV events: every known version's wire format, gaps and their repetition, garbage, a publisher that dies."""

import gzip
import json
import time
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from kvviz.base.checks import check_of
from kvviz.base.errors import KvvizError
from kvviz.base.settings import Settings
from kvviz.decoding.endpoint import kv_events, subscriber
from kvviz.decoding.endpoint.address import event_addresses, find_publisher
from kvviz.decoding.endpoint.kv_events import BlockMap, Told, read_batch
from kvviz.decoding.endpoint.subscriber import Subscriber
from kvviz.experiments.comparison.endpoint_words import lying
from tests.decoding.endpoint.test_address import CARRIED, PRIVATE, named  # noqa: F401
from tests.draws import one_of_each
from tests.kv_publisher import FROM_0_26_0, VERSIONS, Wire, publishing

ROOT, LEFT, RIGHT = b"\x01" * 32, b"\x02" * 32, b"\x03" * 32


def told(version, *batches):
    """What the map tells after these batches, one a second."""
    wire, found = Wire(version), BlockMap()
    for number, events in enumerate(batches):
        found.apply(number, read_batch(msgspec.msgpack.decode(wire.payload(1000.0 + number, *events(wire)))))
    return found.told()


def columns(chain):
    return list(zip(chain["hashes"], chain["tokens"], chain["stored_s"], chain["removed_s"], strict=True))


@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_draws_the_same_map(version):
    found = told(
        version,
        lambda wire: [wire.stored([ROOT, LEFT])],
        lambda wire: [wire.stored([RIGHT], ROOT)],
        lambda wire: [wire.removed([LEFT])],
    )
    trunk, left, right = found["chains"]
    assert [(chain["depth"], chain["parent"]) for chain in (trunk, left, right)] == [
        (0, None), (1, "01" * 8), (1, "01" * 8),
    ]  # fmt: skip
    assert columns(left) == [("02" * 8, 4, 0.0, 2.0)] and columns(right) == [("03" * 8, 4, 1.0, None)]
    assert (found["blocks"], found["tokens"], found["removed"]) == (2, 8, 1)
    assert (found["curve_s"], found["curve_blocks"]) == ([0.0, 1.0, 2.0], [2, 3, 2])
    assert found["form"] == ("arrays" if VERSIONS[version][0] else "maps") and found["unknown"] == []
    assert found["media"] == [{"medium": None if version == "0.9.0" else "GPU", "blocks": 2}]
    assert found["events"] == {"stored": 2, "removed": 1, "cleared": 0} and found["block_tokens"] == [4]
    assert "token_ids" not in str(found), "what somebody asked is not kept"
    assert check_of(Told)(json.loads(json.dumps(found)), "told") == found


def test_what_a_running_vllm_sent():
    found = BlockMap()
    found.apply(0, read_batch(FROM_0_26_0))
    (chain,) = found.told()["chains"]
    assert (chain["parent"], chain["seen"], chain["medium"], chain["group"]) == (None, True, "GPU", 0)
    assert columns(chain) == [(f"{15760518052499183552:016x}", 16, 0.0, None)]


def recorded():
    """The batches of vLLM 0.32.0 on a CPU with 40 blocks of 32 tokens, as its replay socket sent them, and their end.

    Asked were a prompt twice, two prompts at once, three others for which blocks had to go, and, after
    POST /reset_prefix_cache, the first once more.
    """
    file = Path(__file__).with_name("vllm-0.32.0-replay.msgpack.gz")
    *batches, end = msgspec.msgpack.decode(gzip.decompress(file.read_bytes()))
    return batches, end


def test_no_map_of_a_real_engine_has_more_blocks_than_the_engine():
    found, most = BlockMap(), 0
    for _, _, number, payload in recorded()[0]:
        found.apply(int.from_bytes(number, "big"), read_batch(msgspec.msgpack.decode(payload)))
        now = found.told()
        most = max(most, now["blocks"] + now["copies"])
    assert (now["never_stored"], now["missed"], now["unknown"]) == (0, 0, [])
    assert most == 39, "all but the one that vLLM keeps empty"
    assert now["events"]["cleared"] == 1 and now["blocks"] == 3 and now["copies"] == 0


def test_a_block_is_gone_with_its_last_copy():
    batches = [lambda wire: [wire.stored([7])], lambda wire: [wire.stored([7])], lambda wire: [wire.removed([7])]]
    found = told("0.32.0", *batches[:2])
    assert (found["blocks"], found["copies"]) == (1, 1) and "second copies of some of them: 1" in lying(found)
    found = told("0.32.0", *batches)
    assert (found["blocks"], found["copies"], found["removed"]) == (1, 0, 0) and "copies" not in lying(found)
    found = told("0.32.0", *batches, batches[2])
    assert (found["blocks"], found["removed"], found["never_stored"]) == (0, 1, 0)


def test_media_groups_and_a_cache_that_is_cleared():
    found = told(
        "0.26.0",
        lambda wire: [wire.stored([7], medium="GPU", group_idx=0), wire.stored([7], medium="CPU", group_idx=0)],
        lambda wire: [wire.stored([7], group_idx=1), wire.removed([7], group_idx=0), wire.removed([8])],
    )
    assert [one["medium"] for one in found["media"]] == ["GPU", "CPU"] and found["blocks"] == 2
    assert found["never_stored"] == 1 and len(found["chains"]) == 3
    found = told("0.26.0", lambda wire: [wire.stored([7, -8], parent=3)], lambda wire: [wire.cleared()])
    assert (found["blocks"], found["removed"], found["without_parent"]) == (0, 2, 0)
    (chain,) = found["chains"]
    assert chain["seen"] is False and chain["hashes"][1] == f"{2**64 - 8:016x}"
    again = told(
        "0.26.0",
        lambda wire: [wire.stored([7])],
        lambda wire: [wire.cleared()],
        lambda wire: [wire.stored([7])],
        lambda wire: [wire.stored([7])],
    )
    assert (again["blocks"], again["removed"]) == (1, 0) and columns(again["chains"][0])[0][2:] == (2.0, None)


def test_fields_and_events_that_no_table_has_are_told():
    event = {**FROM_0_26_0[1][0], "copies": 2}
    found = read_batch(
        [1.0, [event, {"type": "BlockMoved", "x": 1}, ["BlockRemoved", [1], "GPU", 0, None, None, 9]], 0, "more"]
    )
    assert found.unknown == {"BlockStored.copies", "event BlockMoved", "BlockRemoved, field 6", "batch, field 4"}
    assert [kind for kind, _ in found.events] == ["BlockStored", "BlockRemoved"]
    assert read_batch({"ts": 1.0, "events": [["AllBlocksCleared"]]}).events == [("AllBlocksCleared", {})]


@pytest.mark.parametrize(
    "data",
    [
        *(None, [], {}, 3, [1.0], ["x", []], [1.0, {}], [True, []], [float("nan"), []], [1.0, [[]]], [1.0, [3]]),
        *([1.0, [[7]]], [1.0, [{"type": 7}]], [1.0, [["BlockRemoved"]]], [1.0, [["BlockRemoved", [None]]]]),
        *([1.0, [["BlockStored", [1], None, [], 0]]], [1.0, [["BlockStored", [1], "x", [], 4]]], [1.0, [], "x"]),
        *([1.0, [["BlockStored", [1], None, [], 4, None, 3]]], [1.0, [["BlockStored", 1, None, [], 4]]]),
    ],
)
def test_garbage_is_no_batch(data):
    with pytest.raises(ValueError):
        read_batch(data)


def test_no_map_grows_without_end(monkeypatch):
    monkeypatch.setattr(kv_events, "MOST_BLOCKS", 10)
    monkeypatch.setattr(kv_events, "MOST_DRAWN", 6)
    monkeypatch.setattr(kv_events, "MOST_POINTS", 5)
    found = told("0.26.0", *[lambda wire, n=n: [wire.stored([n])] for n in range(40)])
    assert (found["blocks"], found["untracked"], found["not_drawn"]) == (10, 30, 4)
    assert 5 <= len(found["curve_s"]) <= 21 and (found["curve_s"][-1], found["curve_blocks"][-1]) == (39.0, 10)
    churn = told("0.26.0", *[lambda wire, n=n: [wire.stored([n]), wire.removed([n])] for n in range(40)])
    assert (churn["untracked"], churn["events"]["stored"]) == (0, 40), "what has left the cache makes room"
    circle = told("0.26.0", lambda wire: [wire.stored([1], parent=2), wire.stored([2], parent=1)])
    assert circle["chains"] == [] and circle["not_drawn"] == 2


@contextmanager
def listening(publisher):
    found = Subscriber(find_publisher(publisher.address, Settings()))
    try:
        publisher.pub.recv()  # the subscription
        yield found
    finally:
        found.close()


def until(subscriber, true):
    end = time.monotonic() + 60
    while not true(found := subscriber.take().told()):
        assert time.monotonic() < end, found
        time.sleep(0.005)
    return found


@pytest.mark.parametrize("version", one_of_each(VERSIONS, lambda version: VERSIONS[version][0]))
def test_over_loopback_with_gaps_that_nobody_repeats_and_garbage_between(version):
    with publishing(version) as publisher, listening(publisher) as here:
        publisher.number = 5
        publisher.send(publisher.wire.stored([ROOT]))
        publisher.send(publisher.wire.stored([LEFT], ROOT), lose=True)
        for frames in (
            [b"x"],
            [b"", b"\0" * 8, b"\xc1"],
            [b"", b"\0" * 7, b"\x90"],
            [b"", b"\0" * 8, b"\x91" * 5000],
            [b"", b"\xff" * 8, msgspec.msgpack.encode([1.0, []])],
        ):
            publisher.raw(*frames)
        publisher.send(publisher.wire.stored([RIGHT], LEFT))
        found = until(here, lambda found: found["batches"] == 2)
    assert (found["first_sequence"], found["last_sequence"], found["missed"]) == (5, 7, 1)
    assert found["unreadable"] == 5 and found["without_parent"] == 1 and found["replays"] is None
    assert found["topics"] == ["kv-events"]


@pytest.mark.parametrize("version", ["0.26.0", "0.32.0"])
def test_missed_batches_are_repeated_by_the_replay_socket(version):
    with publishing(version, replays=True) as publisher:
        publisher.send(publisher.wire.stored([ROOT]))  # before anybody listens
        with listening(publisher) as here:
            assert here.map.told()["blocks"] == 1
            publisher.send(publisher.wire.stored([LEFT], ROOT), lose=True)
            publisher.send(publisher.wire.stored([RIGHT], LEFT))
            found = until(here, lambda found: found["batches"] == 3)
    assert (found["missed"], found["replayed"], found["replays"], found["unreadable"]) == (0, 3, True, 0)
    assert [len(chain["hashes"]) for chain in found["chains"]] == [3] and found["restarts"] == 0


def test_a_publisher_that_dies_and_one_that_begins_anew():
    with publishing() as publisher, listening(publisher) as here:
        publisher.send(publisher.wire.stored([ROOT]))
        until(here, lambda found: found["batches"])
        port = int(publisher.events.rpartition(":")[2])
        publisher.pub.close(linger=0)
        lost = until(here, lambda found: found["lost_at_s"] is not None)
        assert lost["blocks"] == 1, "what it told last stays"
        with publishing(port=port) as another:
            another.ts = 2000.0
            another.pub.recv()
            another.send(another.wire.stored([LEFT]))
            found = until(here, lambda found: found["batches"] == 2)
    assert (found["restarts"], found["removed"], found["blocks"]) == (1, 1, 1)


def test_an_address_where_nobody_publishes(monkeypatch):
    with publishing(replays=True) as publisher:
        with monkeypatch.context() as short, pytest.raises(KvvizError, match="publishes no KV events"):
            short.setattr(subscriber, "PATIENCE", 0.3)
            Subscriber(find_publisher(publisher.replay, Settings()))
        wrong = find_publisher(f"{publisher.events},{publisher.events}", Settings())
        monkeypatch.setattr(subscriber, "REPLAY_S", 0.05)
        here = Subscriber(wrong)
        assert here.map.replays is False
        here.close()
    with pytest.raises(KvvizError, match=r"nobody answers at .* has \* for its host"):
        find_publisher(publisher.events, Settings())


@pytest.mark.parametrize(
    "text",
    [
        *("", "localhost:5557", "http://x:5557", "ipc:///tmp/x", "inproc://x", "tcp://x", "tcp://*:5557", "tcp://x:0"),
        *("tcp://x:99999", "tcp://a:1,tcp://b:2,tcp://c:3", "tcp://a:1;tcp://b:2", "tcp://eth0;x:1", "tcp://[:1"),
        *(7, "tcp://u@x:1"),
    ],
)
def test_no_address_of_events(text):
    with pytest.raises(KvvizError, match="the address of KV events is one such as"):
        event_addresses(text)


@pytest.mark.parametrize("number", one_of_each(PRIVATE + CARRIED, lambda number: ":" in number))
def test_a_public_server_listens_to_nobody_on_its_own_network(named, number):  # noqa: F811
    asked = named(number)
    with pytest.raises(KvvizError, match="on its own machine or network, unless its settings list it"):
        find_publisher("tcp://gpu.example.org:5557", Settings(public=True))
    with pytest.raises(KvvizError, match="on its own machine or network"):
        listed = Settings(public=True, endpoints=("tcp://gpu.example.org:5557",))
        find_publisher("tcp://gpu.example.org:5557,tcp://gpu.example.org:22", listed)
    listed = Settings(public=True, endpoints=("http://gpu.example.org/v1", "tcp://gpu.example.org:5557"))
    assert number in find_publisher("tcp://GPU.example.org:5557", listed).events
    assert set(asked) == {"gpu.example.org"}


def test_events_come_from_the_number_that_was_checked(named):  # noqa: F811
    asked = named("93.184.215.14", "127.0.0.1")
    found = find_publisher("tcp://rebinding.example.org:5557", Settings(public=True))
    assert found.events == "tcp://93.184.215.14:5557" and found.name == "rebinding.example.org:5557"
    assert len(asked) == 1
