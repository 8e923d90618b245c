"""What waits, what is being measured, and who may stop it. Standard library only; no torch in this process.

Threads: the worker's link reports from a thread of its own; page scripts call `submit`, `stop` and `get` from theirs.
Records are kept as the JSON text that the worker sent: encoded once, read by everyone.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, cast

from kvviz.base.errors import KvvizError
from kvviz.base.logs import event
from kvviz.base.records import new_id
from kvviz.base.settings import Limits, settings
from kvviz.base.single import Single
from kvviz.base.words import lasting
from kvviz.experiments.kind import Device, Record, Spec
from kvviz.experiments.registry import KINDS, kind_of
from kvviz.server.fair_queue import FairQueue
from kvviz.server.jobs import NOBODY, Clock, Forecast, Job, Jobs, mark_of, may_change
from kvviz.server.worker_process import WorkerLink, why_it_ended

if TYPE_CHECKING:
    from kvviz.server.persister import Persister
    from kvviz.store.files.reading import Imported

log = logging.getLogger("kvviz.server.scheduler")

LAST_STEP_S = 4.0  # seconds that a server which is being ended waits for the step under way
GRACE_S = 15.0  # seconds that a worker has to end a job that it was told to end; one step may take so long
CUT_SHORT = "the server was ended in the middle of this run; what it had measured until then is kept"
NOT_BEGUN = "the server was ended before this run began"


class Scheduler:
    """Queues jobs, fairly by owner, and has the worker measure one at a time."""

    def __init__(
        self, link: WorkerLink | None = None, *, limits: Limits | None = None, clock: Clock = time.monotonic
    ) -> None:
        self._link = link or WorkerLink()
        self._given_limits = limits
        self._clock = clock
        self._lock = threading.Condition()  # notified of every change
        self._jobs = Jobs(clock)
        self._queue = FairQueue()
        self._forecast = Forecast()
        self._current: Job | None = None  # the job that the worker has in hand
        self._last: Job | None = None  # the job that it was handed last
        self._told_to_stop: float | None = None  # when
        self._closing = False
        self.device: Device | None = None
        self.held_by = ""  # who has the device while the worker waits for it
        self.worker_state = "off"
        self.version = 0

    @property
    def limits(self) -> Limits:
        """What jobs and owners may ask for."""
        return self._given_limits or settings().limits

    def start(self, cores: Sequence[int] = ()) -> None:
        """Start the worker on the given cores and keep it alive until `close`."""
        self._closing = False
        self._link.start(self, cores)

    def close(self) -> None:
        """Stop the running job after its step and all that wait; end the worker and the thread that reads it."""
        with self._lock:
            self._closing = True
            for job in self._jobs:
                if job.active and job is not self._current:
                    self._queue.remove(job.id)
                    self._end(job, "stopped", NOT_BEGUN)
            running = self._current
            if running is not None and running.state == "running":
                self._link.tell({"do": "stop", "id": running.id})
                self._lock.wait_for(lambda: not (running.active and self._link.up), LAST_STEP_S)
        self._link.close()

    # --- what pages and routes call ------------------------------------------------------------------------

    def submit(
        self,
        spec: Spec,
        owner: str = "",
        *,
        earlier: Sequence[Record] = (),
        again: bool = False,
        key: str | None = None,
    ) -> str:
        """Queue an experiment of the browser `owner`; returns its id. Raises KvvizError if it can't be done here.

        Without an owner it belongs to nobody: any code may stop it. `earlier`: records of an interrupted run of the
        same spec, which this job continues. An identical queued or finished experiment of a shared kind is reused;
        `again=True` ignores finished ones, since what was measured may have been disturbed. `key` is the owner's for an
        endpoint: it goes to the worker alone.
        """
        kind = kind_of(spec)
        kind.check(spec, self.limits)
        with self._lock:
            same = None if kind.kept else self.same(spec)
            if same is not None and (same.active or not again):
                return same.id
            if self._closing:
                raise KvvizError("the server is being ended; it takes no more runs")
            job = Job(new_id(), spec, kind=kind.name, earlier=earlier, made_by=mark_of(owner), key=key)
            self._check_queue_limits(job.made_by)
            self._jobs.add(job)
            self._forecast.estimate(job, self.device)
            self._queue.add(job.id, job.made_by)
            event(log, "work_queued", **job.log_fields())
            self._changed()
            self._link.wake()
            self._hand_over_next()
        return job.id

    def same(self, spec: Spec) -> Job | None:
        """The newest experiment with the same spec that is queued, under way or finished."""
        return self._newest(lambda job: job.spec == spec and (job.active or job.state == "done"))

    def _check_queue_limits(self, made_by: str) -> None:
        active = [job for job in self._jobs if job.active]
        if len(active) >= self.limits.waiting:
            raise KvvizError(f"{len(active)} comparisons are waiting already; try again when some are done")
        own = sum(job.made_by == made_by for job in active)
        if made_by != NOBODY and own >= self.limits.waiting_per_session:
            raise KvvizError(
                f"{own} of your runs are waiting or under way, which is as many as one browser may have here; "
                "stop one of them or wait for it"
            )

    def adopt(self, opened: "Imported", owner: str = "") -> str:
        """Take in a file that was read as a finished comparison; returns its id. Raises KvvizError without records."""
        if not opened.records:
            raise KvvizError(
                "this file holds the figures of a comparison and not its steps, which a replay needs: open it on the "
                "compare page, or write one that holds both, with `kvviz run --output`"
            )
        job = Job(new_id(), None, state="done", origin="import", made_by=mark_of(owner))
        found = opened.renamed(job.id)
        job.records, job.document = (
            [json.dumps(record) for record in found.records],
            cast(Record | None, found.document),
        )
        with self._lock:
            self._jobs.add(job)
            self._changed()
        return job.id

    def may_stop(self, job_id: str, owner: str = "") -> bool:
        """Whether a job waits or is under way, and is this browser's."""
        job = self._jobs.present(job_id)
        return job is not None and job.active and may_change(job.made_by, owner, trusted=True)

    def stop(self, job_id: str, owner: str = "") -> None:
        """Stop a job: at once if it waits, after the step under way if it runs.

        Loading has no steps: then the worker is ended, and a new one takes its place. Raises KvvizError for another
        browser's job.
        """
        with self._lock:
            job = self._jobs.present(job_id)
            if job is None or not job.active:
                return
            if not self.may_stop(job_id, owner):
                raise KvvizError("this run belongs to another browser, which alone may stop it")
            if job is not self._current:
                self._queue.remove(job_id)
                self._end(job, "stopped")
            elif job.state == "loading":
                self._replace_worker(job, "")
            else:
                self._link.tell({"do": "stop", "id": job_id})
                self._told_to_stop = self._told_to_stop or self._clock()

    def get(self, job_id: str) -> Job | None:
        """A job by id, one of an earlier day included; None for an unknown id."""
        return self._jobs.get(job_id)

    def jobs(self) -> list[Job]:
        """All jobs that are in memory, in the order in which they were submitted."""
        return list(self._jobs)

    def shown(self, comparison: str | None = None) -> Job | None:
        """What the live page shows: the comparison that its address names, else whatever the device is measuring.

        Without an address that is the comparison being measured, else the next one, else the one measured last; never
        what somebody opened from a file.
        """
        if comparison:
            return self._jobs.get(comparison)
        with self._lock:
            last = self._last if self._last is not None and KINDS[self._last.kind].live else None
            waiting = map(self._jobs.present, self._queue.order())
            following = next((job for job in waiting if job is not None and KINDS[job.kind].live), None)
            if self._current is None and following is not None:
                return following
            return last or following or self._newest(lambda job: KINDS[job.kind].live)

    def last_finished(self) -> Job | None:
        """The comparison that was submitted last of those with a result."""
        return self._newest(lambda job: KINDS[job.kind].live and job.document is not None)

    def _newest(self, fits: Callable[[Job], bool]) -> Job | None:
        return next((job for job in reversed(self.jobs()) if job.origin != "import" and fits(job)), None)

    # --- where jobs are kept -------------------------------------------------------------------------------

    def keep_in(self, archive: "Persister | None") -> None:
        """Recall jobs of earlier days from this archive, and hold finished ones until it has them."""
        self._jobs.archive = archive

    def archive_changed(self) -> None:
        """Look again for what the archive did not have."""
        self._jobs.ask_archive_again()
        with self._lock:
            self._changed()

    @property
    def trouble(self) -> str:
        """Why runs are not being kept, in a sentence; empty while they are."""
        return self._jobs.archive.problem if self._jobs.archive is not None else ""

    # --- the queue -----------------------------------------------------------------------------------------

    def ahead(self, job_id: str) -> int:
        """How many jobs come before this one, the one under way included."""
        return len(self._before(job_id))

    def expected_wait(self, job_id: str) -> float | None:
        """Seconds until a job's turn, by estimate; None if that of a job before it is unknown."""
        with self._lock:
            if self.held_by:
                return None
            now = self._clock()
            waits = [self._forecast.left(job, now) for job in self._before(job_id)]
        known = [wait for wait in waits if wait is not None]
        return sum(known) if len(known) == len(waits) else None

    def _before(self, job_id: str) -> list[Job]:
        with self._lock:
            line = [*([self._current.id] if self._current else []), *self._queue.order()]
            return [self._jobs[name] for name in line[: line.index(job_id)]] if job_id in line else []

    def _hand_over_next(self) -> None:
        if self._current is not None or not self._link.up or self.worker_state != "ready":
            return
        job_id = self._queue.take()
        if job_id is None:
            return
        job = self._current = self._last = self._jobs[job_id]
        self._told_to_stop = None
        asked = {"spec": job.description(), "limits": asdict(self.limits), "earlier": list(job.earlier), "key": job.key}
        self._link.tell({"do": job.kind, "id": job_id, **asked})

    def _changed(self) -> None:
        self.version += 1
        self._lock.notify_all()

    def _end(self, job: Job, state: str, message: str = "") -> None:
        seconds = None if job.begun is None else round(self._clock() - job.begun, 3)
        event(log, "work_ended", id=job.id, state=state, was=job.state, seconds=seconds, records=len(job.records))
        job.message, job.key = message, None
        job.records.append(json.dumps({"t": state, "message": message}))
        job.state = state  # after its last record: a job that has ended has all its records
        self._changed()

    # --- what the worker's link reports -----------------------------------------------------------------------

    def worker_is(self, state: str) -> None:
        """Note the worker's new state."""
        with self._lock:
            self.worker_state = state
            self._changed()

    def received(self, job_id: str, kind: str, body: str) -> None:
        """Take in a message of the worker."""
        with self._lock:
            if kind == "hello":
                self._greet(json.loads(body))
            elif kind == "held":
                self.held_by = json.loads(body).get("by", "")
            else:
                self._take_record(job_id, kind, body)
            self._changed()
            self._hand_over_next()

    def _greet(self, device: Device) -> None:
        self.device = device
        self.worker_state, self.held_by = "ready", ""
        event(log, "worker_ready", device=device.get("device_name"))
        for job_id in self._queue.order():
            self._forecast.estimate(self._jobs[job_id], device)

    def _take_record(self, job_id: str, kind: str, body: str) -> None:
        job = self._jobs.present(job_id)
        if job is None or not job.active:
            return  # it was stopped while its worker was still loading
        self.held_by = ""
        if kind == "done":
            self._finish(job, json.loads(body)["document"])
        elif kind in ("stopped", "failed"):
            self._current = None
            cut_short = kind == "stopped" and self._closing
            self._end(job, kind, CUT_SHORT if cut_short else json.loads(body).get("message", ""))
        else:
            job.state = "loading" if kind in ("loading", "download") else "running"
            now = self._clock()
            if job.begun is None:
                job.begun = now
                event(log, "work_begun", id=job.id)
            if job.countdown is not None:
                job.countdown.note(kind, body, now)
            job.records.append(body)

    def _finish(self, job: Job, document: Record) -> None:
        self._current = None
        job.document = document
        closing = KINDS[job.kind].closing
        if closing is not None:
            job.records.append(json.dumps(closing(document)))
        self._forecast.learn(job, self._clock())
        self._end(job, "done")

    def polled(self) -> None:
        """Note that time has passed: a job that does not end though it has to is ended with its worker."""
        with self._lock:
            job, now = self._current, self._clock()
            if job is None:
                return
            limit = getattr(self.limits, KINDS[job.kind].limit)
            if self._told_to_stop is not None and now - self._told_to_stop > GRACE_S:
                self._replace_worker(job, f"its step did not end within {lasting(GRACE_S)}")
            elif job.begun is not None and now - job.begun > limit + GRACE_S:
                self._replace_worker(job, f"it did not end at this server's limit of {lasting(limit)}")

    def _replace_worker(self, job: Job, why: str) -> None:
        """End a job together with the worker that has it in hand."""
        self._current = None
        self.worker_state = "restarting"
        self._end(job, "stopped", why and f"{why}, so the measuring process was ended; a new one takes its place")
        self._link.kill()

    def worker_ended(self, code: int) -> None:
        """Say on the job that the worker was measuring how the worker ended."""
        with self._lock:
            self.held_by = ""
            job, self._current = self._current, None
            if job is not None and self._closing:
                self._end(job, "stopped", NOT_BEGUN if job.state == "queued" else CUT_SHORT)
            elif job is not None and job.state == "queued":  # handed over, but never begun
                self._queue.put_back(job.id, job.made_by)
            elif job is not None:
                self._end(job, "failed", why_it_ended(code, KINDS[job.kind].spec.called))
            self._changed()


scheduler = Single(Scheduler)  # of this server process
use = scheduler.use
