"""The worker process and the pipe to it: started, read, ended, replaced. It knows no work. Standard library only."""

import json
import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any, Protocol

from kvviz.base.logs import event

log = logging.getLogger("kvviz.worker")

LOOK = 0.25  # seconds between two looks at the scheduler's clock while the worker says nothing
# seconds before each new start of a worker that keeps dying; then it is given up on, until there is new work
PATIENCE = (0.2, 0.5, 1, 2, 5)


class Listener(Protocol):
    """Who is told what the worker says; all of it from the link's one thread."""

    def said(self, work_id: str, kind: str, body: str) -> None: ...

    def gone(self, code: int) -> None: ...

    def looked(self) -> None: ...

    def turned(self, state: str) -> None: ...


class WorkerLink:
    """Keeps one worker alive until `close`. Its state goes to the listener: starting, restarting, down, off."""

    def __init__(self, listener: Listener, command: Callable[[int, str], list[str]] | None = None) -> None:
        self.command = command or worker_command
        self.process: subprocess.Popen | None = None
        self._listener = listener
        self._pipe: Connection | None = None
        self._closing = threading.Event()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._cores = ""

    @property
    def up(self) -> bool:
        """Whether there is a pipe to speak into."""
        return self._pipe is not None

    def start(self, cores: Sequence[int] = ()) -> None:
        """Start the worker on the given cores, and keep it alive."""
        self._cores = ",".join(map(str, cores))
        self._closing.clear()
        self._thread = threading.Thread(target=self._keep, name="kvviz-worker-link", daemon=True)
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

    def tell(self, message: dict[str, Any]) -> None:
        """Send a message; a pipe that breaks here is noticed by the thread that reads it."""
        with suppress(OSError, AttributeError):
            self._pipe.send_bytes(json.dumps(message).encode())

    def kill(self) -> None:
        """End this worker at once; a new one takes its place."""
        if self.process is not None:
            self.process.kill()

    def wake(self) -> None:
        """There is new work: a reason to try again what was given up on."""
        self._wake.set()

    def _keep(self) -> None:
        failures = 0
        while not self._closing.is_set():
            greeted = False
            try:
                self._begin()
                greeted = self._read()
            except Exception:  # no memory for a new process, say: this thread has to live on
                log.exception("the worker could not be kept")
                self.kill()
            self._bury()
            failures = 0 if greeted else failures + 1
            if self._closing.is_set():
                return
            if failures >= len(PATIENCE):
                self._listener.turned("down")
                self._wake.wait()
                failures = 0
            else:
                self._closing.wait(PATIENCE[failures])

    def _begin(self) -> None:
        self._wake.clear()
        self._listener.turned("starting")
        ours, theirs = Pipe()
        with theirs:
            command = self.command(theirs.fileno(), self._cores)
            self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        self._pipe = ours
        event(log, "worker_started", pid=self.process.pid)

    def _read(self) -> bool:
        """Read until the worker goes; True if it ever said hello."""
        greeted = False
        while True:
            try:
                said = self._pipe.recv_bytes() if self._pipe.poll(LOOK) else None
            except (EOFError, OSError):
                return greeted
            if said is not None:
                head, _, body = said.decode().partition("\n")
                work_id, kind = head.split(" ")
                greeted |= kind == "hello"
                self._listener.said(work_id, kind, body)
            self._listener.looked()

    def _bury(self) -> None:
        if self._pipe is None:  # none was born
            return
        self._pipe.close()
        self._pipe = None
        self._listener.turned("off" if self._closing.is_set() else "restarting")
        code = self.process.wait()
        if not self._closing.is_set():
            event(log, "worker_ended", logging.WARNING, status=code)
        self._listener.gone(code)


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
