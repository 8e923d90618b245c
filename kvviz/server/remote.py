"""A worker on another machine, behind the same link as the process beside the server. Standard library only.

On that machine a `Relay` keeps the worker alive with a link of its own and collects what this one reports. Here a
`RemoteLink` asks it for that, again and again, and tells the scheduler. How the two speak to one another is up to a
`Caller`: through Ray in `kvviz.server.cluster`.
"""

import logging
import os
import queue
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from kvviz.server.worker_process import POLL_S, Link, Listener, named_worker

log = logging.getLogger("kvviz.server.remote")

Event = tuple[Any, ...]  # the name of a listener's method, and its arguments


class MachineLost(Exception):
    """The machine of a worker can't be reached any more; its text is the reason."""


class Relay:
    """Keeps a worker alive on this machine for a server elsewhere, and collects what its link reports."""

    def __init__(self, name: str, cores: Sequence[int] = (), *, public: bool = False, link: Link | None = None) -> None:
        if public:  # the worker opens files too, and its server is open to strangers
            os.environ["KVVIZ_PUBLIC"] = "1"
        self._link = link or named_worker(name, cores)
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def start(self) -> None:
        """Start the worker."""
        self._link.start(self)

    def events(self, wait_s: float) -> list[Event]:
        """Return what was reported since the last call; wait so many seconds for the first of it."""
        found: list[Event] = []
        with suppress(queue.Empty):
            found.append(self._events.get(timeout=wait_s))
            while True:
                found.append(self._events.get_nowait())
        return found

    def tell(self, message: Mapping[str, object]) -> None:
        """Send the worker a message."""
        self._link.tell(message)

    def kill(self) -> None:
        """End this worker at once; a new one takes its place."""
        self._link.kill()

    def wake(self) -> None:
        """Try again to start a worker that was given up on."""
        self._link.wake()

    def close(self) -> None:
        """End the worker."""
        self._link.close()

    # --- what the link reports -----------------------------------------------------------------------------

    def worker_is(self, state: str) -> None:
        """Note the worker's new state."""
        self._events.put(("worker_is", state))

    def received(self, job_id: str, kind: str, body: str) -> None:
        """Note a message of the worker."""
        self._events.put(("received", job_id, kind, body))

    def polled(self) -> None:
        """Do nothing: the server keeps its own time."""

    def worker_ended(self, code: int) -> None:
        """Note how the worker's process ended."""
        self._events.put(("worker_ended", code))

    def machine_lost(self, why: str) -> None:
        """Do nothing: this is the machine."""


class Caller(Protocol):
    """Calls a relay's methods on its machine."""

    def call(self, method: str, *args: object) -> Any:
        """Call a method and return its answer. Raises MachineLost."""

    def send(self, method: str, *args: object) -> None:
        """Call a method and wait for nothing; a lost machine is noticed by `call`."""


class RemoteLink:
    """The link to a worker on another machine, named after both, such as gpu-2/cuda:0."""

    def __init__(self, name: str, relay: Caller) -> None:
        self.name = name
        self._relay = relay
        self._closing = threading.Event()
        self._lost = False
        self._thread: threading.Thread | None = None

    @property
    def up(self) -> bool:
        """Whether the machine answers."""
        return self._thread is not None and not self._lost and not self._closing.is_set()

    def start(self, listener: Listener, cores: Sequence[int] = ()) -> None:
        """Start the worker there, on the cores that its machine has given it."""
        self._thread = threading.Thread(target=self._listen, args=(listener,), name=f"link {self.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the worker there, and the thread here."""
        self._closing.set()
        self._relay.send("close")
        if self._thread is not None:
            self._thread.join(timeout=3)

    def tell(self, message: Mapping[str, object]) -> None:
        """Send the worker a message."""
        self._relay.send("tell", dict(message))

    def kill(self) -> None:
        """End this worker at once; a new one takes its place."""
        self._relay.send("kill")

    def wake(self) -> None:
        """Try again to start a worker that was given up on: there is new work."""
        self._relay.send("wake")

    def _listen(self, listener: Listener) -> None:
        try:
            self._relay.call("start")
            while not self._closing.is_set():
                for method, *args in self._relay.call("events", POLL_S):
                    getattr(listener, method)(*args)
                listener.polled()
        except MachineLost as error:
            self._lost = True
            if not self._closing.is_set():
                listener.machine_lost(str(error))
        except Exception as error:  # without this thread nobody would hear the worker again
            log.exception("link %s", self.name)
            self._lost = True
            if not self._closing.is_set():
                with suppress(Exception):
                    self._relay.send("close")
                listener.machine_lost(f"its link failed ({type(error).__name__})")
        finally:
            if self._closing.is_set():
                listener.worker_ended(0)
