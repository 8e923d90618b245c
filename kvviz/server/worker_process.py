"""The worker process and the pipe to it: started, read, ended, replaced. It knows no job. Standard library only.

What the scheduler needs of a link, and a link of its listener, stands here too.
"""

import json
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, Pipe
from typing import Protocol

from kvviz.base.logs import event

log = logging.getLogger("kvviz.worker")

POLL_S = 0.25  # seconds after which the listener is told that time has passed, while the worker sends nothing
# seconds in which messages gather before they are read: a worker may measure on the server's core, and each time that
# the server wakes up costs a step some of its time
GATHER_S = 0.01
# seconds before each new start of a worker that keeps dying; then it is given up on, until there is new work
RETRY_AFTER_S = (0.2, 0.5, 1, 2, 5)


class Listener(Protocol):
    """Whoever is told what becomes of a worker; a link calls it from one thread."""

    def worker_is(self, state: str) -> None:
        """Hear that the worker is starting, restarting, down or off."""

    def received(self, job_id: str, kind: str, body: str) -> None:
        """Hear what the worker sent: a record of this kind as JSON, of a job, or of none ("-")."""

    def polled(self) -> None:
        """Hear that time has passed."""

    def worker_ended(self, code: int) -> None:
        """Hear that the worker's process has ended, and its exit status."""

    def machine_lost(self, why: str) -> None:
        """Hear that the worker's machine can't be reached any more, and why."""


class Link(Protocol):
    """A worker that is kept alive, and the way to it. `name` is what a job asks for it by; "" for the only worker."""

    name: str

    @property
    def up(self) -> bool:
        """Whether there is somebody to speak to."""

    def start(self, listener: Listener, cores: Sequence[int] = ()) -> None:
        """Start the worker, and keep it alive."""

    def close(self) -> None:
        """End the worker."""

    def tell(self, message: Mapping[str, object]) -> None:
        """Send the worker a message."""

    def kill(self) -> None:
        """End this worker at once; a new one takes its place."""

    def wake(self) -> None:
        """Try again to start a worker that was given up on: there is new work."""


def worker_command(descriptor: int, cores: str, name: str = "") -> list[str]:
    """The command line that starts a worker on an inherited pipe."""
    return [sys.executable, "-m", "kvviz.worker", str(descriptor), cores, *([name] if name else [])]


def named_worker(name: str, cores: Sequence[int]) -> "WorkerLink":
    """The link to one of several workers of this machine, on cores of its own."""
    return WorkerLink(partial(worker_command, name=name), name=name, cores=cores)


class WorkerLink:
    """Keeps one worker alive until `close`, and tells the scheduler what it sends, from one thread.

    It also tells it the worker's state (starting, restarting, down, off), how it ended, and that time has passed.
    """

    def __init__(
        self,
        command: Callable[[int, str], list[str]] = worker_command,
        *,
        name: str = "",
        cores: Sequence[int] = (),
    ) -> None:
        self.name = name
        self.command = command
        self.process: subprocess.Popen[bytes] | None = None
        self._cores = cores
        self._pipe: Connection | None = None
        self._closing = threading.Event()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def up(self) -> bool:
        """Whether there is a pipe to speak into."""
        return self._pipe is not None

    def start(self, listener: Listener, cores: Sequence[int] = ()) -> None:
        """Start the worker on its own cores, else on the given ones, and keep it alive."""
        self._closing.clear()
        among = ",".join(map(str, self._cores or cores))
        self._thread = threading.Thread(
            target=self._keep_alive, args=(listener, among), name="worker-link", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End the worker and the thread."""
        self._closing.set()
        self._wake.set()
        if self.process is not None:
            self.process.terminate()
        if self._thread is not None:
            self._thread.join(timeout=1)
            if self._thread.is_alive():  # in the middle of a step that does not end
                self.kill()
                self._thread.join(timeout=2)

    def tell(self, message: Mapping[str, object]) -> None:
        """Send a message; a pipe that breaks here is noticed by the thread that reads it."""
        pipe = self._pipe
        if pipe is not None:
            with suppress(OSError):
                pipe.send_bytes(json.dumps(message).encode())

    def kill(self) -> None:
        """End this worker at once; a new one takes its place."""
        if self.process is not None:
            self.process.kill()

    def wake(self) -> None:
        """Try again to start a worker that was given up on: there is new work."""
        self._wake.set()

    def _keep_alive(self, listener: Listener, cores: str) -> None:
        failures = 0
        while not self._closing.is_set():
            greeted = False
            try:
                greeted = self._read(self._start_process(listener, cores), listener)
            except Exception:  # no memory for a new process, say: this thread has to live on
                log.exception("the worker could not be kept")
                self.kill()
            self._clean_up(listener)
            failures = 0 if greeted else failures + 1
            if self._closing.is_set():
                return
            if failures >= len(RETRY_AFTER_S):
                listener.worker_is("down")
                self._wake.wait()
                failures = 0
            else:
                self._closing.wait(RETRY_AFTER_S[failures])

    def _start_process(self, listener: Listener, cores: str) -> Connection:
        self._wake.clear()
        listener.worker_is("starting")
        ours, theirs = Pipe()
        with theirs:
            command = self.command(theirs.fileno(), cores)
            self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        self._pipe = ours
        event(log, "worker_started", pid=self.process.pid)
        return ours

    @staticmethod
    def _read(pipe: Connection, listener: Listener) -> bool:
        """Read until the worker ends; returns whether it ever said hello."""
        greeted = False
        while True:
            try:
                if not pipe.poll():
                    time.sleep(GATHER_S)
                message = pipe.recv_bytes() if pipe.poll(POLL_S) else None
            except (EOFError, OSError):
                return greeted
            if message is not None:
                head, _, body = message.decode().partition("\n")
                job_id, kind = head.split(" ")
                greeted |= kind == "hello"
                listener.received(job_id, kind, body)
            listener.polled()

    def _clean_up(self, listener: Listener) -> None:
        if self._pipe is None or self.process is None:  # it was never started
            return
        self._pipe.close()
        self._pipe = None
        listener.worker_is("off" if self._closing.is_set() else "restarting")
        code = self.process.wait()
        if not self._closing.is_set():
            event(log, "worker_ended", logging.WARNING, status=code)
        listener.worker_ended(code)


def why_it_ended(code: int, called: str) -> str:
    """A worker's exit status as a sentence; `called` is the experiment that it was measuring, such as "a sweep"."""
    names = {number.value: number.name for number in signal.Signals}
    if code == -signal.SIGKILL:
        reason = "it was killed, by a person or by a system short of memory"
    elif code < 0:
        reason = f"signal {names.get(-code, -code)}"
    else:
        reason = f"exit status {code}"
    return f"the measuring process ended in the middle of {called} ({reason}); a new one has taken its place"
