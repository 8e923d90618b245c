"""Looks at something again and again while something else is timed, from a thread of its own. Standard library only."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

EVERY_S = 0.25
RARER = 20  # times the duration of a look: so long is the pause, because the server has to answer each look
CHEAP = 100  # times the processor's seconds of a look: so long is the pause at least, so looks take 1% of a core
PATIENCE = 1.0  # seconds that the last look may take longer than what it accompanies

T = TypeVar("T")


class Looks(Generic[T]):
    """Within the `with`, `look` is called at once and then every EVERY_S, or more rarely if it takes long; `seen` has
    each answer and its second.

    An answer is kept as it came: to read it would take the interpreter from what is timed.
    """

    def __init__(self, look: Callable[[], T], every_s: float | None = None) -> None:
        self.seen: list[tuple[float, T]] = []
        self._look, self._every_s = look, EVERY_S if every_s is None else every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="looks", daemon=True)

    def __enter__(self) -> Self:
        self._begun = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        while True:
            begun, busy = time.perf_counter(), time.thread_time()
            answer = self._look()
            took, busy = time.perf_counter() - begun, time.thread_time() - busy
            if self._over.is_set() and self.seen:
                return
            self.seen.append((time.perf_counter() - self._begun, answer))
            if self._over.wait(max(self._every_s, RARER * took, CHEAP * busy)):
                return
