"""Writes what the scheduler hears into the store, twice a second, from a thread of its own; and finds old runs again.

Measuring never waits for the disk: the scheduler knows nothing of this. What a kill can lose is the last half second.
"""

import json
import logging
import threading
from collections.abc import Callable
from functools import partial

from kvviz.base.errors import KvvizError
from kvviz.base.logs import event
from kvviz.experiments.registry import KINDS
from kvviz.server.job import Job
from kvviz.server.scheduler import Scheduler
from kvviz.store.db.store import Store

log = logging.getLogger("kvviz.server.persister")

EVERY = 0.5  # seconds between two looks


class Persister:
    """`problem` is a sentence while the store can't be written, else empty; what is missing is written later.

    The scheduler is told, for the pages to show; and it lets no finished work go that has not been kept yet.
    """

    def __init__(self, scheduler: Scheduler, store: Callable[[], Store] | None = None) -> None:
        self._scheduler, self._open = scheduler, store or library
        self._written: dict[str, int] = {}
        self._done: set[str] = set()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="persister", daemon=True)
        self.problem = ""

    def start(self) -> None:
        """Begin to look; a store that can't be opened is tried again, and a server without one still measures."""
        self._scheduler.recall, self._scheduler.is_kept = self.recall, self._done.__contains__
        self._thread.start()

    def close(self) -> None:
        """Write what is left, and end."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=5)
        self._scheduler.recall = None

    def _run(self) -> None:
        marked = self._guarded(self._mark)
        while not self._closing.wait(EVERY):
            marked = marked or self._guarded(self._mark)
            self.flush()
        self.flush()

    def _mark(self) -> None:
        """What an earlier server left unfinished is called interrupted."""
        for stored in self._open().unfinished():
            self._open().mark_interrupted(stored.id)
        self._scheduler.look_again()  # who came back before this asked for a run that was not to be had yet

    def _guarded(self, work: Callable[[], None]) -> bool:
        """Do it, or note in a sentence why the store would not have it."""
        try:
            work()
            self._say("")
            return True
        except KvvizError as error:
            if str(error) != self.problem:
                event(log, "store_failed", logging.WARNING, kind=type(error.__cause__).__name__)
            self._say(str(error))
            return False

    def _say(self, problem: str) -> None:
        self.problem = self._scheduler.trouble = problem

    def flush(self) -> None:
        """Write what is new of every experiment of a kind that is kept; the others are measured again in no time."""
        works = [work for work in self._scheduler.jobs() if KINDS[work.kind].kept]
        for work in works:
            if work.id not in self._done and not self._guarded(partial(self._write, work)):
                return
        here = {work.id for work in works}  # what the scheduler has forgotten need not be remembered here
        self._written = {name: count for name, count in self._written.items() if name in here}
        self._done &= here

    def _write(self, work: Job) -> None:
        ended, count = not work.active, len(work.records)  # in this order: a work that ended has all its records
        if work.id not in self._written:
            about = {"kind": work.kind, "origin": work.origin, "title": _title(work), "made_by": work.made_by}
            self._open().begin(work.id, work.description(), **about)
            self._written[work.id] = 0
        if count > self._written[work.id]:
            self._open().append(work.id, work.records[self._written[work.id] : count])
            self._written[work.id] = count
        if ended:
            self._open().finish(work.id, work.state, work.document, work.message)
            self._done.add(work.id)

    def recall(self, work_id: str) -> Job | None:
        """A work of earlier days, as the scheduler holds those of today; None where the store has none."""
        try:
            stored = self._open().get(work_id)
            if stored is None or stored.deleted or stored.state == "running":  # of another process, or cut off just now
                return None
            work = Job(work_id, None, state=_state(stored.state), kind=stored.kind, made_by=stored.made_by)
            work.records = self._open().records(work_id)
            work.document = self._open().document(work_id)
        except KvvizError as error:
            event(log, "run_unreadable", logging.WARNING, id=work_id, kind=type(error.__cause__).__name__)
            return None
        if stored.state == "interrupted":
            work.cut_off = True
            work.records.append(json.dumps({"t": "stopped", "message": "the server ended in the middle of this run"}))
        return work


def _title(work: Job) -> str:
    """Its name in a list; a recording has none, nor has a comparison, which shows its prompt there."""
    return KINDS[work.kind].title(work.spec) if work.spec is not None else ""


def _state(stored: str) -> str:
    return "stopped" if stored == "interrupted" else stored


_library: Store | None = None


def library() -> Store:
    """The one store of this process; opened when it is first asked for. Raises KvvizError where it can't be."""
    global _library
    if _library is None:
        _library = Store()
    return _library


def use(other: Store | None) -> None:
    """Put another store in its place; tests do."""
    global _library
    _library = other
