"""Writes what the scheduler has into the store, twice a second, from a thread of its own; and recalls old jobs.

Measuring never waits for the disk. A kill loses half a second of records at most. A page that looks for a run which has
just ended asks for it to be written at once (`flush`).
"""

import json
import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from kvviz.base.errors import KvvizError
from kvviz.base.logs import event
from kvviz.base.single import Single
from kvviz.experiments.registry import KINDS
from kvviz.server.jobs import Job
from kvviz.server.scheduler import Scheduler
from kvviz.store.db.store import Store

log = logging.getLogger("kvviz.server.persister")

EVERY_S = 0.5
KEPT_S = 86_400.0  # of what was deleted: until then it can be restored
PURGE_EVERY_S = 3_600.0
CUT_OFF = "the server ended in the middle of this run"


class Persister:
    """The archive of a scheduler's jobs (`Jobs.archive`), in the store.

    `problem` is a sentence while the store can't be written, else empty; what is missing is written later.
    """

    def __init__(self, scheduler: Scheduler, store: Callable[[], Store] | None = None) -> None:
        self._scheduler, self._open = scheduler, store or library
        self._written: dict[str, int] = {}  # records in the store, by job
        self._restarts: dict[str, int] = {}  # of the jobs whose machine was lost, as far as the store has heard of it
        self._saved: set[str] = set()  # jobs that have ended and are stored whole
        self._writing = threading.Lock()  # held while this thread or a page's thread writes
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="persister", daemon=True)
        self.problem = ""

    def start(self) -> None:
        """Begin to write; a store that can't be opened is tried again, and a server without one still measures."""
        self._scheduler.keep_in(self)
        self._thread.start()

    def close(self) -> None:
        """Write what is left, and end."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=5)
        self._scheduler.keep_in(None)

    def _run(self) -> None:
        marked, purge_at = self._try(self._mark_interrupted), 0.0
        while not self._closing.wait(EVERY_S):
            marked = marked or self._try(self._mark_interrupted)
            if time.time() >= purge_at and self._try(lambda: self._open().purge(time.time() - KEPT_S)):
                purge_at = time.time() + PURGE_EVERY_S
            self.flush()
        self.flush()

    def _mark_interrupted(self) -> None:
        """Mark what an earlier server left unfinished."""
        for stored in self._open().unfinished():
            self._open().finish(stored.id, "interrupted")
        self._scheduler.archive_changed()  # a viewer may have asked for one of them before it was marked

    def _try(self, write: Callable[[], object]) -> bool:
        """Do it, or note in a sentence why the store refused."""
        try:
            write()
        except KvvizError as error:
            if str(error) != self.problem:
                event(log, "store_failed", logging.WARNING, kind=type(error.__cause__).__name__)
            self.problem = str(error)
            return False
        self.problem = ""
        return True

    def flush(self) -> None:
        """Write what is new of every job of a kind that is kept."""
        with self._writing:
            jobs = [job for job in self._scheduler.jobs() if KINDS[job.kind].kept]
            for job in jobs:
                if job.id not in self._saved and not self._try(partial(self._write, job)):
                    return
            in_memory = {job.id for job in jobs}
            self._written = {job_id: count for job_id, count in self._written.items() if job_id in in_memory}
            self._restarts = {job_id: count for job_id, count in self._restarts.items() if job_id in in_memory}
            self._saved &= in_memory

    def _write(self, job: Job) -> None:
        restarts = job.restarts
        ended, records = not job.active, job.records  # in this order: a job that has ended has all its records
        count, store = len(records), self._open()
        if self._written.get(job.id) and restarts != self._restarts.get(job.id, 0):
            store.drop_records(job.id)
            self._written[job.id] = 0
        self._restarts[job.id] = restarts
        if job.id not in self._written:
            title = KINDS[job.kind].title(job.spec) if job.spec is not None else ""
            about = {"kind": job.kind, "origin": job.origin, "title": title, "made_by": job.made_by}
            store.begin(job.id, job.description(), **about)
            self._written[job.id] = 0
        if count > self._written[job.id]:
            store.append(job.id, records[self._written[job.id] : count])
            self._written[job.id] = count
        if ended:
            store.finish(job.id, job.state, job.document, job.message)
            self._saved.add(job.id)

    def has(self, job_id: str) -> bool:
        """Whether everything of a finished job is stored."""
        return job_id in self._saved

    def recall(self, job_id: str) -> Job | None:
        """A job of an earlier day, as the scheduler holds those of today; None if the store has none."""
        try:
            store = self._open()
            stored = store.get(job_id)
            if stored is None or stored.deleted or stored.state == "running":  # of another process, or cut off just now
                return None
            records, document = store.records(job_id), store.document(job_id)
        except KvvizError as error:
            event(log, "run_unreadable", logging.WARNING, id=job_id, kind=type(error.__cause__).__name__)
            return None
        job = Job(job_id, None, stored.state, "", records, document, stored.kind, stored.origin, made_by=stored.made_by)
        if stored.state == "interrupted":
            job.state, job.cut_off = "stopped", True
            job.records.append(json.dumps({"t": "stopped", "message": CUT_OFF}))
        return job


library = Single(Store)  # of this process; raises KvvizError if it can't be opened
use = library.use
