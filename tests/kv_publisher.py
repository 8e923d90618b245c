"""A publisher of KV events with the wire format of each version of vLLM: msgspec structs with its fields and options.

The fields are written out here once more, and not taken from kv_events.toml, so that the two are held to one another.
"""

import threading
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec
import zmq

HASHES, PARENT = ("block_hashes", list), ("parent_block_hash", int | bytes | None)
STORED = [HASHES, PARENT, ("token_ids", list[int]), ("block_size", int), ("lora_id", int | None)]
MEDIUM, NAME = ("medium", str | None), ("lora_name", str | None)
KEYS, GROUP = ("extra_keys", list | None, None), ("group_idx", int | None, None)
KIND, WINDOW = ("kv_cache_spec_kind", str | None, None), ("kv_cache_spec_sliding_window", int | None, None)
FROM, SESSION = [("locality", str | None, None), ("ownership", str | None, None)], ("session_id", str | None, None)
REMOVED = [HASHES, MEDIUM]
VERSIONS = {  # array or map, the fields of a stored and of a removed block; whether a batch has a rank
    "0.9.0": (True, STORED, [HASHES], False),
    "0.11.2": (True, [*STORED, MEDIUM], REMOVED, True),
    "0.15.0": (True, [*STORED, MEDIUM, NAME], REMOVED, True),
    "0.18": (True, [*STORED, MEDIUM, NAME, KEYS], REMOVED, True),
    "0.23.0": (True, [*STORED, MEDIUM, NAME, KEYS, GROUP, KIND, WINDOW], [*REMOVED, GROUP], True),
    "0.26.0": (False, [*STORED, MEDIUM, NAME, KEYS, GROUP, KIND, WINDOW], [*REMOVED, GROUP], True),
    "0.32.0": (
        False,
        [*STORED, MEDIUM, NAME, KEYS, GROUP, KIND, WINDOW, *FROM, SESSION],
        [*REMOVED, GROUP, *FROM],
        True,
    ),
}
# What a running vLLM 0.26.0 sent: https://github.com/volcano-sh/kthena/issues/1535
FROM_0_26_0 = [
    1789095808.8378847,
    [
        {
            "type": "BlockStored",
            "block_hashes": [15760518052499183552],
            "parent_block_hash": None,
            "token_ids": list(range(16)),  # there the tokens of a question
            "block_size": 16,
            "lora_id": None,
            "medium": "GPU",
            "lora_name": None,
            "extra_keys": [None],
            "group_idx": 0,
            "kv_cache_spec_kind": "full_attention",
        }
    ],
    0,
]


class Wire:
    """The messages of a version."""

    def __init__(self, version):
        array, stored, removed, ranked = VERSIONS[version]
        options = {"omit_defaults": True, "gc": False}
        fields = {"BlockStored": stored, "BlockRemoved": removed, "AllBlocksCleared": []}
        self.kinds = {
            kind: msgspec.defstruct(kind, own, tag=True, array_like=array, **options) for kind, own in fields.items()
        }
        rank = [("data_parallel_rank", int | None, None)] if ranked else []
        self.batch = msgspec.defstruct("Batch", [("ts", float), ("events", list), *rank], array_like=True, **options)
        self.named = {kind: [one[0] for one in own] for kind, own in fields.items()}
        self.ranked = ranked

    def event(self, kind, **given):
        usual = {"lora_id": None, "medium": "GPU", "lora_name": None}
        known = {**usual, **given}
        return self.kinds[kind](**{name: known[name] for name in self.named[kind] if name in known})

    def stored(self, hashes, parent=None, size=4, **given):
        tokens = list(range(size * len(hashes)))
        return self.event(
            "BlockStored", block_hashes=hashes, parent_block_hash=parent, token_ids=tokens, block_size=size, **given
        )

    def removed(self, hashes, **given):
        return self.event("BlockRemoved", block_hashes=hashes, **given)

    def cleared(self):
        return self.event("AllBlocksCleared")

    def payload(self, ts, *events):
        return msgspec.msgpack.encode(self.batch(ts, list(events), *([0] if self.ranked else [])))


@dataclass
class Publisher:
    """A PUB socket, and a ROUTER that repeats what was sent; `lose` sends a batch to the second alone."""

    pub: zmq.Socket
    wire: Wire
    events: str
    replay: str | None
    topics: bool = True  # whether the second repeats the topic too, as newer versions do
    kept: deque = field(default_factory=deque)
    number: int = 0
    ts: float = 1000.0

    def send(self, *events, topic=b"kv-events", lose=False):
        self.ts += 1
        payload = self.wire.payload(self.ts, *events)
        self.kept.append((self.number, payload))
        if not lose:
            self.raw(topic, self.number.to_bytes(8, "big"), payload)
        self.number += 1

    def raw(self, *frames):
        self.pub.send_multipart(frames)

    @property
    def address(self):
        return self.events if self.replay is None else f"{self.events},{self.replay}"


@contextmanager
def publishing(version="0.26.0", *, replays=False, port=0):
    """Publish on loopback while the context lasts."""
    context = zmq.Context()
    pub = context.socket(zmq.XPUB)  # as PUB, and it can wait until somebody has subscribed
    at = f"tcp://127.0.0.1:{port}" if port else f"tcp://127.0.0.1:{pub.bind_to_random_port('tcp://127.0.0.1')}"
    if port:
        pub.bind(at)
    router, over = context.socket(zmq.ROUTER), threading.Event()
    replay = f"tcp://127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}" if replays else None
    found = Publisher(pub, Wire(version), at, replay, topics=version == "0.32.0")

    def repeat():
        while not over.is_set():
            if not router.poll(20):
                continue
            client, _, since = router.recv_multipart()
            topic, end = ([b"kv-events"], [b""]) if found.topics else ([], [])
            for number, payload in list(found.kept):
                if number >= int.from_bytes(since, "big"):
                    router.send_multipart((client, b"", *topic, number.to_bytes(8, "big"), payload))
            router.send_multipart((client, b"", *end, (-1).to_bytes(8, "big", signed=True), b""))

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
        context.destroy(linger=0)
