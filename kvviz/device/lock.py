"""Lock the device so that only one measurement runs at a time, in this process or any other.

A server with several workers measures on several devices at once: each of them locks its own device and shares the
machine, which everybody else takes as a whole. The lock files lie under KVVIZ_HOME. The kernel releases a lock when its
holder exits or crashes.
Imports only the standard library.
"""

import fcntl
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO

from kvviz.base.errors import KvvizError
from kvviz.base.paths import home
from kvviz.base.settings import device_of

log = logging.getLogger("kvviz.device.lock")

LOOK = 0.1  # seconds between two attempts to take a lock that another process holds


def lock_file(worker: str = "") -> Path:
    """Path of the machine's lock file, or of one worker's: it describes the holder as JSON (pid, what, start time)."""
    return home() / (f"device-{re.sub('[^A-Za-z0-9]', '-', worker)}.lock" if worker else "device.lock")


def measured_beside(worker: str, since: float) -> bool:
    """Whether another worker on this machine's processor measures now, or has since a time (seconds since 1970).

    It reads the memory that `worker` reads. A card has its own memory, so the answer for a card is no. A process that
    was killed leaves its description in the file, but not the lock.
    """
    if device_of(worker) != "cpu":
        return False
    with suppress(OSError, KvvizError):
        for path in set(home().glob("device-cpu*.lock")) - {lock_file(worker)}:
            found = path.stat()
            if found.st_mtime >= since or (found.st_size and _is_locked(path)):
                return True
    return False


def _is_locked(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextmanager
def measuring(
    what: str,
    *,
    worker: str = "",
    patient: bool = True,
    tell: Callable[[str], None] = lambda words: None,
    between: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Hold the device lock inside `with`. While another process holds it, wait and `tell` once who the holder is.

    One of several workers gives its name, such as "cuda:1": it holds that device alone and shares the machine.
    `between` is called between two attempts and may raise to stop waiting. With `patient=False`, raises KvvizError that
    names the holder instead of waiting. If the system or the folder does not support locks, logs a warning and runs
    without one.
    """
    files = _opened(worker)
    if files is None:
        yield
        return
    turn, device, own = files
    with device, own:
        wait = _Wait(device, bool(worker), patient, tell, between)
        with turn:  # the next in line holds the turn, so that a process cannot release and retake the device
            if worker:
                wait.until_locked(own, fcntl.LOCK_EX, own)
            wait.until_locked(turn, fcntl.LOCK_EX)
            wait.until_locked(device, fcntl.LOCK_SH if worker else fcntl.LOCK_EX)
        _write(own, {"pid": os.getpid(), "what": what, "since": time.strftime("%H:%M:%S")})
        try:
            yield
        finally:
            _write(own, {})


def _opened(worker: str) -> tuple[IO[str], IO[str], IO[str]] | None:
    """Open the files of the turn and of the machine, and the one in which the holder is described."""
    try:
        paths = [lock_file().with_name("device.turn"), lock_file(), *([lock_file(worker)] if worker else [])]
        files = [os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+") for path in paths]
    except (OSError, KvvizError) as error:
        log.warning("no lock on the device: another measurement may run at the same time (%s)", error)
        return None
    return files[0], files[1], files[-1]


@dataclass(frozen=True)
class _Wait:
    """How to wait for a lock of the machine's file `device`, or of another one."""

    device: IO[str]
    shares: bool  # the machine, with the server's other workers
    patient: bool
    tell: Callable[[str], None]
    between: Callable[[], None]

    def until_locked(self, file: IO[str], kind: int, held: IO[str] | None = None) -> None:
        """Wait for the lock; `held` describes who has it, if that is not the machine's file."""
        told = ""
        for attempt in count():
            try:
                fcntl.flock(file, kind | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                pass
            except OSError as error:  # the file system does not support locks
                log.warning("no lock on the device: another measurement may run at the same time (%s)", error)
                return
            words = _holder(held or self.device) or ("" if self.shares else _holder_of_a_part())
            words = words or "another process has the device"
            if not self.patient:
                raise KvvizError(f"{words}; measurements take turns, so wait for its end")
            if words != told and (attempt or not self.shares):  # workers pass the turn on at once
                self.tell(words)
                told = words
            self.between()
            time.sleep(LOOK)


def _holder(file: IO[str]) -> str:
    """Describe the holder in a sentence; "" if it has only just taken or released the lock."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        file.seek(0)
        found = json.loads(file.read())
        return f"{found['what']} (process {found['pid']}) has had the device since {found['since']}"
    return ""


def _holder_of_a_part() -> str:
    """Describe one of the workers that share the machine; a file whose lock is free tells of a process that died."""
    with suppress(OSError, KvvizError):
        for path in sorted(home().glob("device-*.lock")):
            if _is_locked(path):
                with path.open() as file:
                    return _holder(file)
    return ""


def _write(device: IO[str], holder: dict[str, object]) -> None:
    with suppress(OSError):  # on a full disk the lock still holds; only its description is missing
        os.ftruncate(device.fileno(), 0)
        if holder:  # past the file's buffer, which would be written once more, and fail, where the file is closed
            os.pwrite(device.fileno(), json.dumps(holder).encode(), 0)
