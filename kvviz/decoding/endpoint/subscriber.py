"""Subscribes to an engine's KV cache events: ZeroMQ's PUB socket, and the ROUTER beside it that repeats missed batches.

The network is read by ZeroMQ's own thread, so messages wait there while something is timed, and `take` reads them.
Every message has three frames: the topic, eight bytes of sequence number, the batch in MessagePack.
"""

import time
from contextlib import suppress

import msgspec
import zmq
from zmq.utils.monitor import recv_monitor_message

from kvviz.base.errors import KvvizError
from kvviz.decoding.endpoint.address import PATIENCE, Published
from kvviz.decoding.endpoint.kv_events import MOST_NAMES, BlockMap, read_batch

MOST_BYTES = 2_000_000  # of one message
MOST_WAITING = 500  # messages that wait to be read; the publisher drops what comes beyond
MOST_REPEATED = 20_000  # messages that one repeat brings
REPLAY_S = 2.0  # seconds that a repeat may take
MOST_SEQUENCE = 2**53  # a higher number is no count
_END = (-1).to_bytes(8, "big", signed=True)  # the sequence number after the last repeated batch


class Subscriber:
    """Listens from its birth to `close`; `map` is what the messages read so far have told."""

    def __init__(self, place: Published) -> None:
        """Connect, and wait until the other side has said that it publishes. Raises KvvizError if it does not."""
        self.place, self.map = place, BlockMap()
        self._begun = time.monotonic()
        self._context = zmq.Context()
        self._socket = self._open(zmq.SUB, zmq.RCVHWM, MOST_WAITING)
        self._socket.setsockopt(zmq.SUBSCRIBE, b"")
        self._events = self._socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        try:
            self._socket.connect(place.events)
        except zmq.ZMQError as error:
            self.close()
            raise KvvizError(f"{place.name} can't be listened to: {error}") from None
        if not self._shook_hands():
            self.close()
            raise KvvizError(
                f"{place.name} publishes no KV events: is it the address of vLLM's kv-events-config, such as "
                "tcp://localhost:5557?"
            )
        if place.replay:
            self._repeat(0)

    def close(self) -> None:
        """Close the connections."""
        with suppress(zmq.ZMQError):
            self._socket.disable_monitor()
        self._context.destroy(linger=0)

    def take(self) -> BlockMap:
        """Read what has come since the last call, and have missed batches repeated where that is offered."""
        for _ in range(MOST_WAITING):
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            self._read(frames)
        self._note_losses()
        return self.map

    def _open(self, kind: int, option: int, value: int) -> "zmq.Socket[bytes]":
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, MOST_BYTES)
        socket.setsockopt(zmq.IPV6, 1)
        socket.setsockopt(option, value)
        return socket

    def _shook_hands(self) -> bool:
        end = time.monotonic() + PATIENCE
        while (left := end - time.monotonic()) > 0:
            came = self._events.poll(round(1000 * left))
            if came and recv_monitor_message(self._events)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                return True
        return False

    def _note_losses(self) -> None:
        """Note that the publisher went away, or that it is back."""
        while self._events.poll(0):
            gone = recv_monitor_message(self._events)["event"] == zmq.EVENT_DISCONNECTED
            self.map.lost_at_s = round(time.monotonic() - self._begun, 3) if gone else None

    def _read(self, frames: list[bytes], *, repeated: bool = False) -> None:
        """Take in one message; ask for those that are missing before it, if there is somebody to ask."""
        found = self.map
        try:
            topic, number, payload = frames
            if len(number) != 8:
                raise ValueError(number)
            sequence = int.from_bytes(number, "big")
            if sequence > MOST_SEQUENCE:
                raise ValueError(sequence)
            batch = read_batch(msgspec.msgpack.decode(payload))
        except (ValueError, RecursionError, msgspec.DecodeError):
            found.unreadable += 1
            return
        if len(found.topics) < MOST_NAMES:
            found.topics |= {topic.decode("utf-8", "replace")[:100]} - {""}
        if not repeated and found.replays and found.last is not None and found.gap(sequence):
            self._repeat(found.last + 1)
        found.apply(sequence, batch, replayed=repeated)

    def _repeat(self, since: int) -> None:
        """Have the batches from this number on repeated, as far as the engine still has them."""
        socket = self._open(zmq.DEALER, zmq.RCVHWM, MOST_WAITING)
        end = time.monotonic() + REPLAY_S
        try:
            self.map.replays = False
            socket.connect(self.place.replay or "")
            socket.send_multipart([b"", since.to_bytes(8, "big")])
            for _ in range(MOST_REPEATED):
                if not socket.poll(max(0, round(1000 * (end - time.monotonic())))):
                    return
                _, *frames = socket.recv_multipart()  # a number and a batch, in newer versions after the topic
                topic, number, payload = [b"", *frames][-3:]
                if number == _END:
                    self.map.replays = True
                    return
                self._read([topic, number, payload], repeated=True)
        except (zmq.ZMQError, ValueError):
            return
        finally:
            socket.close()
