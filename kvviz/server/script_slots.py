"""Slots for page scripts: two compute at a time, for the feed needs the server's one core and interpreter lock too.

With twenty scripts at work the thread that serves the feed waits more than a second for the lock each time; with one
or two it waits milliseconds, and every script ends sooner on average too. Standard library only.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SLOTS = 2
PATIENCE_S = 5.0  # after which a script goes ahead without a slot: no page hangs on another's
SWITCH_S = 0.0005  # after which a busy thread hands the lock on; Python's own 0.005 is made for throughput


class Slots:
    """Who may compute now. A thread that has a slot may ask again: it keeps the one it has."""

    def __init__(self, slots: int = SLOTS, patience: float = PATIENCE_S) -> None:
        self._free = threading.BoundedSemaphore(slots)
        self._patience = patience
        self._mine = threading.local()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a slot, and give it back."""
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


_slots = Slots()
turn, aside = _slots.turn, _slots.aside


def share_the_lock() -> None:
    """Have busy threads hand the interpreter's lock on often, so that the feed is not late."""
    sys.setswitchinterval(SWITCH_S)
