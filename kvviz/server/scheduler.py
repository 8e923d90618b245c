"""What waits, what is being measured, and who may stop it. Standard library only; no torch in this process.

Threads: each worker's link reports from a thread of its own; page scripts call `submit`, `stop` and `get` from theirs.
Records are kept as the JSON text that the worker sent: encoded once, read by everyone.
"""

import json
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, cast

from kvviz.base.errors import KvvizError
from kvviz.base.logs import event
from kvviz.base.records import new_id
from kvviz.base.settings import Limits, device_of, settings
from kvviz.base.single import Single
from kvviz.base.words import lasting
from kvviz.experiments.eta import in_line
from kvviz.experiments.kind import Device, DeviceChoice, Record, Spec
from kvviz.experiments.registry import KINDS, kind_of
from kvviz.models.sources import find_source
from kvviz.server.employed import Employed, able
from kvviz.server.fair_queue import FairQueue
from kvviz.server.jobs import NOBODY, Clock, Forecast, Job, Jobs, mark_of, may_change
from kvviz.server.worker_process import Link, WorkerLink, why_it_ended

if TYPE_CHECKING:
    from kvviz.server.persister import Persister
    from kvviz.store.files.reading import Imported

log = logging.getLogger("kvviz.server.scheduler")

LAST_STEP_S = 4.0  # seconds that a server which is being ended waits for the step under way
RESTARTS = 2  # how often a job whose machine was lost begins again
GRACE_S = 15.0  # seconds that a worker has to end a job that it was told to end; one step may take so long
CUT_SHORT = "the server was ended in the middle of this run; what it had measured until then is kept"
NOT_BEGUN = "the server was ended before this run began"


@dataclass(frozen=True)
class Place:
    """Where a job stands in the queue: how many come before it, its wait in seconds by estimate, who has its device."""

    ahead: int
    wait_s: float | None
    held_by: str = ""
    why: str = ""  # it waits once more

    @property
    def words(self) -> str:
        """The place in a sentence."""
        place = in_line(self.ahead, self.wait_s, self.held_by)
        return f"{self.why}. {place}" if self.why else place


class Scheduler:
    """Queues jobs, fairly by owner, and has each of its workers measure one at a time."""

    def __init__(self, *links: Link, limits: Limits | None = None, clock: Clock = time.monotonic) -> None:
        self.workers = [Employed(self, link) for link in links or (WorkerLink(),)]
        self._given_limits = limits
        self._clock = clock
        self._lock = threading.Condition()  # notified of every change
        self._jobs = Jobs(clock)
        self._queue = FairQueue()
        self._forecast = Forecast()
        self._handed: list[Job] = []  # the jobs that workers have in hand, the one handed over last at the end
        self._last: Job | None = None  # the job that was handed over last
        self._closing = False
        self.version = 0

    @property
    def limits(self) -> Limits:
        """What jobs and owners may ask for."""
        return self._given_limits or settings().limits

    def start(self, cores: Sequence[int] = ()) -> None:
        """Start the workers, those without cores of their own on the given ones, and keep them alive until `close`."""
        self._closing = False
        for worker in self.workers:
            worker.link.start(worker, cores)

    def employ(self, *links: Link) -> None:
        """Take these in place of the workers so far, before `start`."""
        self.workers = [Employed(self, link) for link in links]

    def join(self, link: Link) -> None:
        """Take in one more worker, and start it."""
        worker = Employed(self, link)
        with self._lock:
            self.workers = [*self.workers, worker]
        link.start(worker)

    def close(self) -> None:
        """Stop the running jobs after their step and all that wait; end the workers and the threads that read them."""
        with self._lock:
            self._closing = True
            for job in self._jobs:
                if job.active and job not in self._handed:
                    self._queue.remove(job.id)
                    self._end(job, "stopped", NOT_BEGUN)
            running = [worker for worker in self.workers if worker.job and worker.job.state == "running"]
            for worker in running:
                worker.link.tell({"do": "stop", "id": worker.job.id if worker.job else ""})
            self._lock.wait_for(lambda: not any(one.job and one.link.up for one in running), LAST_STEP_S)
        closing = [threading.Thread(target=worker.link.close) for worker in self.workers]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()

    # --- the devices ---------------------------------------------------------------------------------------

    @property
    def device(self) -> Device | None:
        """The device that `auto` stands for; None before its worker has said hello."""
        return self.device_for("auto")

    def device_for(self, asked: str) -> Device | None:
        """The device that measures a job which asks for this one; None before its worker has said hello."""
        return able(self.workers, asked)[0].device

    def devices(self) -> list[DeviceChoice]:
        """The devices that a job can ask for by name: those of the only worker's machine, or of each worker."""
        found = [(worker, worker.device) for worker in self.workers if worker.device]
        if len(self.workers) == 1 and not self.workers[0].name:
            return found[0][1].get("devices", []) if found else []
        return [
            DeviceChoice(
                device=worker.name,
                device_name=device["device_name"],
                total_bytes=device["total_bytes"],
                free_bytes=device["free_bytes"],
            )
            for worker, device in found
        ]

    @property
    def worker_state(self) -> str:
        """The state of the first worker, or of one that is ready."""
        states = [worker.state for worker in self.workers]
        return "ready" if "ready" in states else states[0]

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
        elsewhere = _weights_elsewhere(spec.to_dict())
        with self._lock:
            same = None if kind.kept else self.same(spec)
            if same is not None and (same.active or not again):
                return same.id
            if self._closing:
                raise KvvizError("the server is being ended; it takes no more runs")
            job = Job(new_id(), spec, kind=kind.name, earlier=earlier, made_by=mark_of(owner), key=key)
            job.elsewhere = elsewhere
            self._check_queue_limits(job.made_by)
            self._jobs.add(job)
            job.asked_at = self._clock()
            self._forecast.estimate(job, self.device_for(_asked(job)))
            self._queue.add(job.id, job.made_by)
            event(log, "work_queued", **job.log_fields())
            self._changed()
            for worker in self._able(job):
                worker.link.wake()
            self._hand_over_next()
        return job.id

    def same(self, spec: Spec) -> Job | None:
        """The newest experiment with the same spec that is queued, under way or finished; None for a private kind."""
        if kind_of(spec).private:
            return None
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
            worker = self._worker_of(job)
            if worker is None:
                self._queue.remove(job_id)
                self._end(job, "stopped")
            elif job.state == "loading":
                self._replace_worker(worker, job, "")
            else:
                worker.link.tell({"do": "stop", "id": job_id})
                worker.told_to_stop = worker.told_to_stop or self._clock()

    def get(self, job_id: str) -> Job | None:
        """A job by id, one of an earlier day included; None for an unknown id."""
        return self._jobs.get(job_id)

    def wait(self, until: Callable[[], object], seconds: float) -> None:
        """Wait until `until()` is true, which is asked after every change, or for so many seconds."""
        with self._lock:
            self._lock.wait_for(until, seconds)

    def jobs(self) -> list[Job]:
        """All jobs that are in memory, in the order in which they were submitted."""
        return list(self._jobs)

    def shown(self, comparison: str | None = None) -> Job | None:
        """What the live page shows: the comparison that its address names, else whatever the device is measuring.

        Without an address that is the comparison being measured (of several, the one begun first), else the next one,
        else the one measured last; never what somebody opened from a file.
        """
        if comparison:
            return self._jobs.get(comparison)
        with self._lock:
            last = self._last if self._last is not None and KINDS[self._last.kind].live else None
            waiting = map(self._jobs.present, self._queue.order())
            following = next((job for job in waiting if job is not None and KINDS[job.kind].live), None)
            if measured := next((job for job in self._handed if KINDS[job.kind].live), None):
                return measured
            if not self._handed and following is not None:
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

    def keep_now(self) -> None:
        """Have the archive write at once what it would write within half a second. The caller waits for the disk."""
        if self._jobs.archive is not None:
            self._jobs.archive.flush()

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

    def place(self, job_id: str) -> Place:
        """Where a job stands."""
        with self._lock:
            job = self._jobs.present(job_id)
            own = None if job is None else self._worker_of(job)
            held = [worker.held_by for worker in ([own] if own else self._able(job) if job else [])]
            why = job.message if job is not None and job.active else ""
            return Place(self.ahead(job_id), self.expected_wait(job_id), held[0] if held and all(held) else "", why)

    def ahead(self, job_id: str) -> int:
        """How many jobs come before this one on the devices that may measure it, the one under way included."""
        with self._lock:
            order = self._queue.order()
            if job_id not in order:
                return 0
            workers = self._able(self._jobs[job_id])
            before = order[: order.index(job_id)]
            competing = sum(any(one in workers for one in self._able(self._jobs[name])) for name in before)
            return competing + all(worker.job is not None for worker in workers)

    def expected_wait(self, job_id: str) -> float | None:
        """Seconds until a job's turn, by estimate: each job before it goes to the first device that is free for it.

        None if that of a job before it is unknown, or if its device is held.
        """
        with self._lock:
            order, now = self._queue.order(), self._clock()
            if job_id not in order:
                return 0.0
            free = {worker: self._free_in(worker, now) for worker in self.workers}
            for name in order:
                job = self._jobs[name]
                worker = min(self._able(job), key=free.__getitem__)
                if name == job_id:
                    return free[worker] if math.isfinite(free[worker]) else None
                left = self._forecast.left(job, now)
                free[worker] += math.inf if left is None else left
        return None

    def _free_in(self, worker: Employed, now: float) -> float:
        """Seconds until a worker has ended what it has in hand; infinity if nobody knows."""
        if worker.held_by:
            return math.inf
        left = 0.0 if worker.job is None else self._forecast.left(worker.job, now)
        return math.inf if left is None else left

    def line(self) -> list[tuple[Job, float]]:
        """The jobs under way and those that wait, in their order, and the seconds since each was asked for."""
        with self._lock:
            now, waiting = self._clock(), map(self._jobs.present, self._queue.order())
            return [(job, now - (job.asked_at or now)) for job in (*self._handed, *waiting) if job is not None]

    def measured_on(self, job: Job) -> str:
        """The name of the worker that has a job in hand; "" for none, and for the only one."""
        worker = self._worker_of(job)
        return worker.name if worker is not None else ""

    def _able(self, job: Job) -> list[Employed]:
        """The workers that may measure a job; a key, and a job without one kind of weights, go to no other machine."""
        stays = job.key or job.elsewhere is None
        here = [worker for worker in self.workers if not worker.place] if stays else []
        return able(here or self.workers, _asked(job))

    def _worker_of(self, job: Job) -> Employed | None:
        return next((worker for worker in self.workers if worker.job is job), None)

    def _hand_over_next(self) -> None:
        for worker in self.workers:
            if worker.ready:
                self._hand_over(worker)

    def _hand_over(self, worker: Employed) -> None:
        job_id = self._queue.take(lambda name: worker in self._able(self._jobs[name]))
        if job_id is None:
            return
        job = worker.job = self._last = self._jobs[job_id]
        self._handed.append(job)
        worker.told_to_stop = None
        spec = dict(job.description())
        if worker.is_called(_asked(job)) and worker.device is not None:
            spec["device"] = worker.device.get("device", spec["device"])
        if worker.place and job.elsewhere:
            spec["weights"] = job.elsewhere  # `auto` might find others there; a machine without these says so
        asked = {"spec": spec, "limits": asdict(self._limits_of(worker)), "earlier": list(job.earlier), "key": job.key}
        worker.link.tell({"do": job.kind, "id": job_id, **asked})

    def _limits_of(self, worker: Employed) -> Limits:
        """What its job may ask for: workers on one machine's processor share its memory."""
        near = [one for one in self.workers if one.place == worker.place]
        beside = [one for one in near if device_of(one.name) == device_of(worker.name) == "cpu"]
        return replace(self.limits, memory_share=self.limits.memory_share / max(1, len(beside)))

    def _release(self, worker: Employed) -> Job | None:
        """Take from a worker what it has in hand."""
        job, worker.job = worker.job, None
        self._handed = [other for other in self._handed if other is not job]
        return job

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

    def worker_is(self, worker: Employed, state: str) -> None:
        """Note a worker's new state."""
        with self._lock:
            worker.state = state
            self._changed()

    def received(self, worker: Employed, job_id: str, kind: str, body: str) -> None:
        """Take in a message of a worker."""
        with self._lock:
            if kind == "hello":
                self._greet(worker, json.loads(body))
            elif kind == "held":
                worker.held_by = json.loads(body).get("by", "")
            elif kind == "free" and worker.device is not None:
                worker.device["free_bytes"] = json.loads(body)["bytes"]
            else:
                self._take_record(worker, job_id, kind, body)
            self._changed()
            self._hand_over_next()

    def _greet(self, worker: Employed, device: Device) -> None:
        worker.device = device
        worker.state, worker.held_by = "ready", ""
        event(log, "worker_ready", device=device.get("device_name"), **({"name": worker.name} if worker.name else {}))
        for job_id in self._queue.order():
            job = self._jobs[job_id]
            self._forecast.estimate(job, self.device_for(_asked(job)))

    def _take_record(self, worker: Employed, job_id: str, kind: str, body: str) -> None:
        job = self._jobs.present(job_id)
        if job is None or job is not worker.job:
            return  # it was stopped while its worker was still loading
        worker.held_by = ""
        if kind == "done":
            self._release(worker)
            self._finish(job, json.loads(body)["document"])
        elif kind in ("stopped", "failed"):
            self._release(worker)
            cut_short = kind == "stopped" and self._closing
            message = CUT_SHORT if cut_short else json.loads(body).get("message", "")
            self._end(job, kind, f"on {worker.place}: {message}" if worker.place and message else message)
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
        job.document = document
        closing = KINDS[job.kind].closing
        if closing is not None:
            job.records.append(json.dumps(closing(document)))
        self._forecast.learn(job, self._clock())
        self._end(job, "done")

    def polled(self, worker: Employed) -> None:
        """Note that time has passed: a job that does not end though it has to is ended with its worker."""
        with self._lock:
            job, now = worker.job, self._clock()
            if job is None:
                return
            limit = getattr(self.limits, KINDS[job.kind].limit)
            if worker.told_to_stop is not None and now - worker.told_to_stop > GRACE_S:
                self._replace_worker(worker, job, f"its step did not end within {lasting(GRACE_S)}")
            elif job.begun is not None and now - job.begun > limit + GRACE_S:
                self._replace_worker(worker, job, f"it did not end at this server's limit of {lasting(limit)}")

    def _replace_worker(self, worker: Employed, job: Job, why: str) -> None:
        """End a job together with the worker that has it in hand."""
        self._release(worker)
        worker.state = "restarting"
        self._end(job, "stopped", why and f"{why}, so the measuring process was ended; a new one takes its place")
        worker.link.kill()

    def worker_ended(self, worker: Employed, code: int) -> None:
        """Say on the job that a worker was measuring how the worker ended."""
        with self._lock:
            worker.held_by = ""
            job = self._release(worker)
            if job is not None and self._closing:
                self._end(job, "stopped", NOT_BEGUN if job.state == "queued" else CUT_SHORT)
            elif job is not None and job.state == "queued":  # handed over, but never begun
                self._queue.put_back(job.id, job.made_by)
            elif job is not None:
                self._end(job, "failed", why_it_ended(code, KINDS[job.kind].spec.called))
            self._changed()

    def machine_lost(self, worker: Employed, why: str) -> None:
        """Let a worker go whose machine can't be reached; what it had in hand begins again with another one."""
        said = f"The machine {worker.place or 'of the worker'} was lost ({why})"
        event(log, "worker_lost", logging.WARNING, name=worker.name, why=why)
        with self._lock:
            job = self._release(worker)
            worker.state = "down"
            self.workers = [other for other in self.workers if other is not worker] or [worker]
            if job is not None and self._closing:
                self._end(job, "stopped", CUT_SHORT)
            elif job is not None and (job.restarts >= RESTARTS or _asked(job) == worker.name):
                self._end(job, "failed", f"{said}; this run asked for it" if job.restarts < RESTARTS else said)
            elif job is not None:
                self._give_back(job, said)
            for waiting in [self._jobs[name] for name in self._queue.order()]:
                if _asked(waiting) == worker.name:
                    self._queue.remove(waiting.id)
                    self._end(waiting, "failed", f"{said}; this run asked for it")
            self._changed()
            self._hand_over_next()

    def _give_back(self, job: Job, why: str) -> None:
        """Make a job the next one again, as if it had not begun."""
        event(log, "work_given_back", id=job.id, was=job.state, records=len(job.records))
        if job.state != "queued":
            job.begin_again(f"{why}; this run begins again")
            self._forecast.estimate(job, self.device_for(_asked(job)))
        self._queue.put_back(job.id, job.made_by)


def _asked(job: Job) -> str:
    """The device that a job asks for."""
    return getattr(job.spec, "device", "auto")


def _weights_elsewhere(asked: Record) -> str | None:
    """Decide which weights another machine takes for a spec; "" if the spec has none to decide.

    None if no other machine may measure it: a spec holds one kind of weights, so models of two kinds stay here, and so
    does a draft that doesn't come with kvviz, for which a worker always takes what it finds.
    """
    models, draft = asked.get("models") or [asked.get("model")], asked.get("draft")
    try:
        if draft and find_source(draft).weights != "bundled":
            return None
        if asked.get("weights") != "auto":
            return ""
        kinds = {find_source(model).weights for model in models if isinstance(model, str)}
    except KvvizError:  # the worker of this machine says on the job what is wrong
        return None
    return next(iter(kinds), "") if len(kinds) < 2 else None


scheduler = Single(Scheduler)  # of this server process
use = scheduler.use
