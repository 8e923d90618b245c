"""Page scripts take turns: the server has one core and one interpreter lock, and the feed needs both at once.

With twenty scripts at work the thread that serves the feed waits more than a second for the lock each time; with one
or two it waits milliseconds, and every script is done sooner on average too. Standard library only.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

AT_ONCE = 2  # scripts that compute at the same time
PATIENCE = 5.0  # seconds after which a script goes ahead all the same: no page hangs on another's
SWITCH = 0.0005  # seconds after which a busy thread hands the lock on; Python's own 0.005 is made for throughput


class Turns:
    """Who may compute now. A thread that has a turn may ask again: it keeps the one it has."""

    def __init__(self, at_once: int = AT_ONCE, patience: float = PATIENCE) -> None:
        self._free = threading.BoundedSemaphore(at_once)
        self._patience = patience
        self._mine = threading.local()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn and give it back."""
        if getattr(self._mine, "has", False):
            yield
            return
        self._take()
        try:
            yield
        finally:
            self._give()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Let others compute while this thread waits for something: another process, the network."""
        had = getattr(self._mine, "has", False)
        if had:
            self._give()
        try:
            yield
        finally:
            if had:
                self._take()

    def _take(self) -> None:
        self._mine.has = self._free.acquire(timeout=self._patience)

    def _give(self) -> None:
        if self._mine.has:
            self._mine.has = False
            self._free.release()


_turns = Turns()
turn, aside = _turns.turn, _turns.aside


def share_the_lock() -> None:
    """Have busy threads hand the interpreter's lock on often, so that the feed is not late."""
    sys.setswitchinterval(SWITCH)
