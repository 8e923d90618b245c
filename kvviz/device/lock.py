"""One measurement at a time, whoever makes it: a lock under KVVIZ_HOME, for as long as something is measured.

The kernel lets it go when its holder dies, however that happens. Standard library only.
"""

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

LOOK = 0.1  # seconds between two looks at a lock that another process has


def lock_file() -> Path:
    """Where the holder stands, as JSON: its pid, what it is, since when."""
    return home() / "device.lock"


@contextmanager
def measuring(
    what: str,
    *,
    patient: bool = True,
    tell: Callable[[str], None] = lambda words: None,
    between: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Have the device for oneself inside `with`. Where another has it: wait, and `tell` once who that is.

    `between` is called between two looks and may raise to give up. Raises KvvizError, with who has the device, where
    `patient` is False. Where no lock can be kept (no such folder, no such system call) there is a warning, and none.
    """
    files = _opened()
    if files is None:
        yield
        return
    turn, device = files
    with device:
        with turn:  # who waits longest for the device has the turn: nobody who lets go and takes again overtakes
            for file in (turn, device):
                _lock(file, device, patient, tell, between)
        _write(device, {"pid": os.getpid(), "what": what, "since": time.strftime("%H:%M:%S")})
        try:
            yield
        finally:
            _write(device, {})


def _opened() -> tuple[IO[str], IO[str]] | None:
    try:
        import fcntl  # noqa: F401  (a system without it has no lock)

        paths = (lock_file().with_name("device.turn"), lock_file())
        turn, device = (os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+") for path in paths)
    except (ImportError, OSError, KvvizError) as error:
        log.warning("no lock on the device: another measurement may run at the same time (%s)", error)
        return None
    return turn, device


def _lock(
    file: IO[str], device: IO[str], patient: bool, tell: Callable[[str], None], between: Callable[[], None]
) -> None:
    import fcntl

    told = ""
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        except OSError as error:  # a file system that knows no locks
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
    """Who has it, in words."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        device.seek(0)
        found = json.loads(device.read())
        return f"{found['what']} (process {found['pid']}) has had the device since {found['since']}"
    return "another process has the device"  # it has just taken it, or just let it go


def _write(device: IO[str], holder: dict[str, object]) -> None:
    with suppress(OSError):  # a full disk: the lock holds all the same
        device.seek(0)
        device.truncate()
        device.write(json.dumps(holder) if holder else "")
        device.flush()
