"""Lock the device so that only one measurement runs at a time, in this process or any other.

The lock file lies under KVVIZ_HOME. The kernel releases the lock when its holder exits or crashes.
Imports only the standard library.
"""

import fcntl
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from kvviz.base.errors import KvvizError
from kvviz.base.paths import home

log = logging.getLogger("kvviz.device.lock")

LOOK = 0.1  # seconds between two attempts to take a lock that another process holds


def lock_file() -> Path:
    """Path of the lock file, which describes the holder as JSON: pid, what it measures, start time."""
    return home() / "device.lock"


@contextmanager
def measuring(
    what: str,
    *,
    patient: bool = True,
    tell: Callable[[str], None] = lambda words: None,
    between: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Hold the device lock inside `with`. While another process holds it, wait and `tell` once who the holder is.

    `between` is called between two attempts and may raise to stop waiting. With `patient=False`, raises KvvizError that
    names the holder instead of waiting. If the system or the folder does not support locks, logs a warning and runs
    without one.
    """
    files = _opened()
    if files is None:
        yield
        return
    turn, device = files
    with device:
        with turn:  # the next in line holds the turn, so that a process cannot release and retake the device
            for file in (turn, device):
                _lock(file, device, patient, tell, between)
        _write(device, {"pid": os.getpid(), "what": what, "since": time.strftime("%H:%M:%S")})
        try:
            yield
        finally:
            _write(device, {})


def _opened() -> tuple[IO[str], IO[str]] | None:
    try:
        paths = (lock_file().with_name("device.turn"), lock_file())
        turn, device = (os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+") for path in paths)
    except (OSError, KvvizError) as error:
        log.warning("no lock on the device: another measurement may run at the same time (%s)", error)
        return None
    return turn, device


def _lock(
    file: IO[str], device: IO[str], patient: bool, tell: Callable[[str], None], between: Callable[[], None]
) -> None:
    told = ""
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        except OSError as error:  # the file system does not support locks
            log.warning("no lock on the device: another measurement may run at the same time (%s)", error)
            return
        words = _holder(device)
        if not patient:
            raise KvvizError(f"{words}; measurements take turns, so wait for its end")
        if words != told:
            tell(words)
            told = words
        between()
        time.sleep(LOOK)


def _holder(device: IO[str]) -> str:
    """Describe the holder in a sentence."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        device.seek(0)
        found = json.loads(device.read())
        return f"{found['what']} (process {found['pid']}) has had the device since {found['since']}"
    return "another process has the device"  # the holder has only just taken or released the lock


def _write(device: IO[str], holder: dict[str, object]) -> None:
    with suppress(OSError):  # on a full disk the lock still holds; only its description is missing
        device.seek(0)
        device.truncate()
        device.write(json.dumps(holder) if holder else "")
        device.flush()
