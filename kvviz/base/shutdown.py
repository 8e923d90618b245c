"""Shutting down on SIGTERM and SIGINT: finish the step under way, save what was measured, end the process."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from kvviz.base.logs import event

log = logging.getLogger("kvviz.base.shutdown")

SIGNALS = (signal.SIGTERM, signal.SIGINT)
LONGEST_S = 9.0  # from the signal to the end; a container's host waits ten seconds before it kills
CONNECTIONS_S = 2.0  # among them, for connections to close once all is saved


def leave_quietly() -> None:
    """End with status 0 and no traceback when a signal comes before or after the server serves."""
    for number in SIGNALS:
        signal.signal(number, lambda *_: sys.exit(0))


@contextmanager
def told_to_stop() -> Iterator[list[int]]:
    """Give a list that holds the signal once one has come; a second one ends the process as it always would."""
    told: list[int] = []
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, _: FrameType | None) -> None:
        told.append(number)
        restore()

    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            signal.signal(number, note)
    try:
        yield told
    finally:
        if threading.current_thread() is threading.main_thread():
            restore()


def finish_first(finish: Callable[[], None]) -> None:
    """At the first signal call `finish`, from a thread of its own, and then do what the signal did until now.

    Once all is saved the process ends with status 0, whatever connection is still open. It ends after LONGEST_S seconds
    in any case, with status 1 if something was not saved. A second signal is not held up. Outside the main thread,
    which alone receives signals, this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    leaving = threading.Event()
    for number in SIGNALS:
        signal.signal(number, _handler(signal.getsignal(number), finish, leaving))


def _handler(before: object, finish: Callable[[], None], leaving: threading.Event) -> Callable:
    def proceed(number: int, frame: FrameType | None) -> None:
        if callable(before):
            before(number, frame)

    def work(number: int) -> None:
        try:
            finish()
        except Exception:  # whatever is wrong with saving, the process has to end
            log.exception("finish")
        else:
            _after(CONNECTIONS_S, lambda: os._exit(0))
        proceed(number, None)

    def handle(number: int, frame: FrameType | None) -> None:
        if leaving.is_set():
            proceed(number, frame)
            return
        leaving.set()
        _after(LONGEST_S, _give_up)
        threading.Thread(target=work, args=(number,), daemon=True, name="leaving").start()

    return handle


def _after(seconds: float, do: Callable[[], object]) -> None:
    timer = threading.Timer(seconds, do)
    timer.daemon = True
    timer.start()


def _give_up() -> None:
    event(log, "leaving_forced", logging.ERROR)
    os._exit(1)
