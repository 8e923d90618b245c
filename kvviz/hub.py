"""The queue, what is under way, and the link to the worker. Standard library only; no torch in this process.

Threads: one keeps the worker alive and reads what it sends; page scripts call `submit`, `stop` and `get` from
theirs. Records are kept as the JSON text that the worker sent: encoded once, read by everyone.
"""

import json
import logging
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe
from typing import Any

from kvviz.errors import KvvizError
from kvviz.modes import mode_named
from kvviz.records import ComparisonSpec, new_id
from kvviz.report import headline
from kvviz.sources import find_source
from kvviz.sweeps import SweepSpec, find_sources

log = logging.getLogger("kvviz.hub")

KEEP = 40  # finished comparisons that stay in memory
ASK_AGAIN = 2.0  # seconds before an id that was not found is looked for on disk again
LONGEST_QUEUE = 50
PATIENCE = (
    0.2,
    0.5,
    1,
    2,
    5,
)  # seconds before each new start of a worker that keeps dying; then the hub gives up

ACTIVE = ("queued", "loading", "running")


@dataclass
class Work:
    """One submitted comparison: its state and the records so far, each one JSON text."""

    id: str
    spec: ComparisonSpec | SweepSpec | None  # None for a recording
    state: str = "queued"
    message: str = ""
    records: list[str] = field(default_factory=list)
    document: dict[str, Any] | None = None
    kind: str = "comparison"  # or sweep
    origin: str = "here"
    earlier: Sequence[dict[str, Any]] = ()  # records of a sweep that is taken up again

    def description(self) -> dict[str, Any]:
        """The spec as plain values; a recording's stands in its first record."""
        if self.spec is not None:
            return self.spec.to_dict()
        return json.loads(self.records[0]).get("spec", {}) if self.records else {}

    @property
    def active(self) -> bool:
        return self.state in ACTIVE


class Hub:
    """Queues comparisons and has them measured one at a time."""

    def __init__(self, command: Callable[[int, str], list[str]] | None = None) -> None:
        self._command = command or worker_command
        self._lock = threading.RLock()
        self._works: OrderedDict[str, Work] = OrderedDict()
        self._waiting: deque[str] = deque()
        self._current: str | None = None
        self._measured: str | None = None
        self._pipe: Connection | None = None
        self._process: subprocess.Popen | None = None
        self._closing = threading.Event()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._recalled: OrderedDict[str, Work] = OrderedDict()  # of earlier days, read again
        self._missing: dict[str, float] = {}
        self.recall: Callable[[str], Work | None] | None = None  # finds works of earlier days
        self.device: dict[str, Any] | None = None
        self.worker_state = "off"
        self.version = 0

    # --- what pages and routes call ------------------------------------------------------------------------

    def start(self, cores: Sequence[int] = ()) -> None:
        """Start the worker on the given cores and keep it alive until `close`."""
        self._cores = ",".join(map(str, cores))
        self._closing.clear()
        self._thread = threading.Thread(target=self._keep_worker, name="kvviz-hub", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the worker and the hub's thread."""
        self._closing.set()
        self._wake.set()
        if self._process is not None:
            self._process.terminate()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def submit(self, spec: ComparisonSpec) -> str:
        """Queue a comparison; returns its id. Raises KvvizError where it can't be done at all."""
        for name in spec.modes:
            mode_named(name)
        find_source(spec.model, spec.weights)
        return self._queue(Work(new_id(), spec))

    def submit_sweep(self, spec: SweepSpec, earlier: Sequence[dict[str, Any]] = ()) -> str:
        """Queue a sweep, or the rest of one whose `earlier` records there are; returns its id."""
        find_sources(spec)
        return self._queue(Work(new_id(), spec, kind="sweep", earlier=earlier))

    def _queue(self, work: Work) -> str:
        with self._lock:
            if sum(other.active for other in self._works.values()) >= LONGEST_QUEUE:
                raise KvvizError(f"{LONGEST_QUEUE} comparisons are waiting already; try again when some are done")
            self._works[work.id] = work
            self._forget()
            self._waiting.append(work.id)
            self._changed()
            self._wake.set()
            self._next()
        return work.id

    def adopt(self, records: Sequence[dict[str, Any]]) -> str:
        """Take in a recording (kvviz.recording.loads) as a finished comparison; returns its id."""
        with self._lock:
            texts = [json.dumps(record) for record in records]
            work = Work(new_id(), None, state="done", records=texts, origin="import")
            self._works[work.id] = work
            self._forget()
            self._changed()
        return work.id

    def stop(self, comparison_id: str) -> None:
        """Stop a comparison: at once where it waits, after the step under way where it runs.

        Loading knows no steps: there the worker is ended, and a new one takes its place.
        """
        with self._lock:
            work = self._works.get(comparison_id)
            if work is None or not work.active:
                return
            if comparison_id != self._current:
                self._end(work, "stopped")
            elif work.state == "running":
                self._tell({"do": "stop", "id": comparison_id})
            else:
                self._current = None
                self.worker_state = "restarting"
                self._end(work, "stopped")
                self._process.kill()

    def get(self, comparison_id: str) -> Work | None:
        """A comparison by id, one of earlier days included; None where it is unknown."""
        found = self._works.get(comparison_id) or self._recalled.get(comparison_id)
        if found is not None or self.recall is None or self._missing.get(comparison_id, 0) > time.monotonic():
            return found
        found = self.recall(comparison_id)
        with self._lock:
            if found is None:
                self._missing = {comparison_id: time.monotonic() + ASK_AGAIN}
                return None
            self._recalled[comparison_id] = found
            while len(self._recalled) > KEEP:
                self._recalled.popitem(last=False)
        return found

    def works(self) -> list[Work]:
        """All works that are in memory."""
        with self._lock:
            return list(self._works.values())

    def latest(self) -> Work | None:
        """The comparison that is being measured, else the next, else the one that was measured last."""
        with self._lock:
            shown = [work for work in self._works.values() if work.kind == "comparison"]
            measured = next((work for work in shown if work.id in (self._current, self._measured)), None)
            if self._current is None and (following := next((w for w in shown if w.active), None)) is not None:
                return following
            return measured or next(reversed(shown), None)

    def last_document(self) -> dict[str, Any] | None:
        """The document of the comparison that was finished last, None before the first."""
        with self._lock:
            compared = (work for work in reversed(self._works.values()) if work.kind == "comparison")
            return next((work.document for work in compared if work.document), None)

    def ahead(self, comparison_id: str) -> int:
        """How many comparisons come before this one."""
        with self._lock:
            active = [work.id for work in self._works.values() if work.active]
            return active.index(comparison_id) if comparison_id in active else 0

    # --- the queue -----------------------------------------------------------------------------------------

    def _forget(self) -> None:
        finished = [work.id for work in self._works.values() if not work.active]
        for comparison_id in finished[: max(0, len(self._works) - KEEP)]:
            del self._works[comparison_id]

    def _next(self) -> None:
        """Hand the worker the next comparison, if it is free."""
        while self._current is None and self._pipe is not None and self.worker_state == "ready":
            if not self._waiting:
                return
            work = self._works.get(self._waiting.popleft())
            if work is not None and work.active:
                self._current = self._measured = work.id
                job = {"do": work.kind, "id": work.id, "spec": work.description()}
                self._tell({**job, "done": list(work.earlier)} if work.kind == "sweep" else job)

    def _tell(self, message: dict[str, Any]) -> None:
        with suppress(OSError):  # a pipe that breaks here is noticed by the thread that reads it
            self._pipe.send_bytes(json.dumps(message).encode())

    def _changed(self) -> None:
        self.version += 1

    def _end(self, work: Work, state: str, message: str = "") -> None:
        work.state, work.message = state, message
        work.records.append(json.dumps({"t": state, "message": message}))
        self._changed()

    # --- the worker ----------------------------------------------------------------------------------------

    def _keep_worker(self) -> None:
        failures = 0
        while not self._closing.is_set():
            greeted = False
            try:
                self._start_worker()
                greeted = self._read_worker()
                self._bury()
            except Exception:  # no memory for a new process, say: this thread has to live on
                log.exception("the worker could not be kept")
            failures = 0 if greeted else failures + 1
            if self._closing.is_set():
                return
            if failures >= len(PATIENCE):
                self.worker_state = "down"
                self._changed()
                self._wake.wait()  # a new comparison is a new reason to try
                failures = 0
            else:
                self._closing.wait(PATIENCE[failures])

    def _start_worker(self) -> None:
        self._wake.clear()
        self.worker_state = "starting"
        self._changed()
        ours, theirs = Pipe()
        with theirs:
            command = self._command(theirs.fileno(), self._cores)
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        self._pipe = ours

    def _read_worker(self) -> bool:
        """Read until the worker goes; True if it ever said hello."""
        greeted = False
        while True:
            try:
                head, _, body = self._pipe.recv_bytes().decode().partition("\n")
            except (EOFError, OSError):
                return greeted
            comparison_id, kind = head.split(" ")
            with self._lock:
                if kind == "hello":
                    greeted = True
                    self.device = json.loads(body)
                    self.worker_state = "ready"
                else:
                    self._take(comparison_id, kind, body)
                self._changed()
                self._next()

    def _take(self, comparison_id: str, kind: str, body: str) -> None:
        work = self._works.get(comparison_id)
        if work is None or not work.active:
            return  # it was stopped while its worker was still loading
        if kind == "done":
            work.document = json.loads(body)["document"]
            self._finish(work, "done")
        elif kind in ("stopped", "failed"):
            self._finish(work, kind, json.loads(body).get("message", ""))
        else:
            work.state = "loading" if kind in ("loading", "download") else "running"
            work.records.append(body)

    def _finish(self, work: Work, state: str, message: str = "") -> None:
        self._current = None
        if state == "done" and work.kind == "comparison":
            work.records.append(json.dumps({"t": "figures", "runs": headline(work.document)}))
        self._end(work, state, message)

    def _bury(self) -> None:
        """The worker is gone: say so on the comparison that it was measuring."""
        with self._lock:
            self._pipe.close()
            self._pipe = None
            self.worker_state = "off" if self._closing.is_set() else "restarting"
        code = self._process.wait()
        with self._lock:
            if self._current is not None:
                work, self._current = self._works[self._current], None
                if work.state == "queued":  # handed over, but never begun
                    self._waiting.appendleft(work.id)
                else:
                    self._end(work, "failed", why_it_ended(code))
                log.warning("worker ended with %s during comparison %s", code, work.id)
            self._changed()


def why_it_ended(code: int) -> str:
    """A worker's exit status as a sentence."""
    if code == -signal.SIGKILL:
        reason = "it was killed, by a person or by a system short of memory"
    elif code < 0:
        reason = f"signal {signal_name(-code)}"
    else:
        reason = f"exit status {code}"
    return f"the measuring process ended in the middle of this comparison ({reason}); a new one has taken its place"


def signal_name(number: int) -> str:
    """A signal's name, its number where it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def worker_command(descriptor: int, cores: str) -> list[str]:
    """The command line that starts a worker on an inherited pipe."""
    return [sys.executable, "-m", "kvviz.worker", str(descriptor), cores]


_hub: Hub | None = None


def hub() -> Hub:
    """The one hub of this server process."""
    global _hub
    if _hub is None:
        _hub = Hub()
    return _hub


def use(other: Hub | None) -> None:
    """Put another hub in its place; tests do."""
    global _hub
    _hub = other
