"""What waits, what is under way, and who may do what with it. Standard library only; no torch in this process.

Threads: the worker's link tells what the worker says from a thread of its own; page scripts call `submit`, `stop` and
`get` from theirs. Records are kept as the JSON text that the worker sent: encoded once, read by everyone.
"""

import json
import logging
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.base.logs import event
from kvviz.base.records import new_id
from kvviz.base.settings import Limits, settings
from kvviz.base.words import lasting
from kvviz.experiments.comparison.report import headline
from kvviz.experiments.eta import Experience
from kvviz.experiments.kind import Spec, unknown
from kvviz.experiments.registry import KINDS, kind_of
from kvviz.server.fair_queue import FairQueue
from kvviz.server.job import Job
from kvviz.server.ownership import NOBODY, mark_of, may_change
from kvviz.server.worker_process import WorkerLink, why_it_ended

log = logging.getLogger("kvviz.server.scheduler")

KEEP = 40  # finished works that stay in memory once the store has them
UNKEPT = 200  # at most so many where it has not: a disk may be full for a while
ASK_AGAIN = 2.0  # seconds before an id that was not found is looked for on disk again
STEP_S = 4.0  # seconds that a server which leaves waits for the step under way
LEFT = "the server was ended in the middle of this run; what it had measured until then is kept"
NOT_BEGUN = "the server was ended before this run began"
GRACE = 15.0  # seconds that a worker has to end a work that it was told to end; one step may take so long

Clock = Callable[[], float]


class Scheduler:
    """Queues works, fairly by owner, and has them measured one at a time."""

    def __init__(
        self,
        command: Callable[[int, str], list[str]] | None = None,
        *,
        limits: Limits | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._link = WorkerLink(self, command)
        self._given_limits = limits
        self._clock = clock
        self._lock = threading.RLock()
        self._works: OrderedDict[str, Job] = OrderedDict()
        self._queue = FairQueue()
        self._experience = defaultdict[str, Experience](Experience)  # of each kind
        self._current: str | None = None
        self._measured: str | None = None
        self._told_to_stop: float | None = None  # when
        self._leaving = False
        self._recalled: OrderedDict[str, Job] = OrderedDict()  # of earlier days, read again
        self._missing: dict[str, float] = {}
        self.recall: Callable[[str], Job | None] | None = None  # finds works of earlier days
        self.is_kept: Callable[[str], bool] = lambda work_id: True  # whether the store has all of a finished work
        self.trouble = ""  # why the store can't be written, in a sentence
        self.device: dict[str, Any] | None = None
        self.held_by = ""  # who has the device while the worker waits for it
        self.worker_state = "off"
        self.version = 0

    @property
    def limits(self) -> Limits:
        """What works and owners may ask for."""
        return self._given_limits or settings().limits

    def start(self, cores: Sequence[int] = ()) -> None:
        """Start the worker on the given cores and keep it alive until `close`."""
        self._leaving = False
        self._link.start(cores)

    def close(self) -> None:
        """Stop what runs after its step, and all that waits; end the worker and the thread that reads it."""
        with self._lock:
            self._leaving = True
            for work in [work for work in self._works.values() if work.active]:
                if work.id != self._current:
                    self._queue.remove(work.id)
                    self._end(work, "stopped", NOT_BEGUN)
                elif work.state == "running":
                    self._link.tell({"do": "stop", "id": work.id})
        self._wait_for_step()
        self._link.close()

    def _wait_for_step(self) -> None:
        end = time.monotonic() + STEP_S
        while self._link.up and time.monotonic() < end:
            work = self._works.get(self._current or "")
            if work is None or work.state != "running":
                return
            time.sleep(0.02)

    # --- what pages and routes call ------------------------------------------------------------------------

    def submit(
        self, spec: Spec, owner: str = "", *, earlier: Sequence[dict[str, Any]] = (), again: bool = False
    ) -> str:
        """Queue an experiment of the browser `owner`; returns its id. Raises KvvizError where it can't be done at all.

        Without an owner it belongs to nobody: whoever may do so in code may stop it. `earlier`: records of an
        interrupted run of the same spec, which goes on from there. Of a kind that is shared, an identical queued or
        finished experiment is reused; `again=True` ignores finished ones, since what was measured may have been
        disturbed.
        """
        kind = kind_of(spec)
        kind.check(spec, self.limits)
        with self._lock:
            found = None if kind.kept else self.same(spec)
            if found is not None and (found.active or not again):
                return found.id
            work = Job(new_id(), spec, kind=kind.name, earlier=earlier, made_by=mark_of(owner))
            if kind.estimate is unknown:
                work.course.expect(self._experience[kind.name].usual)
            return self._wait_in_line(work)

    def same(self, spec: Spec) -> Job | None:
        """The newest experiment with the same spec that is queued, under way or finished."""
        with self._lock:
            same = (work for work in reversed(self._works.values()) if work.spec == spec)
            return next((work for work in same if work.active or work.state == "done"), None)

    def _wait_in_line(self, work: Job) -> str:
        with self._lock:
            if self._leaving:
                raise KvvizError("the server is being ended; it takes no more runs")
            self._check_room(work.made_by)
            self._works[work.id] = work
            self._forget()
            work.course.foresee(self.device)
            self._queue.add(work.id, work.made_by)
            event(log, "work_queued", **work.told())
            self._changed()
            self._link.wake()
            self._next()
        return work.id

    def _check_room(self, made_by: str) -> None:
        active = [work for work in self._works.values() if work.active]
        if len(active) >= self.limits.waiting:
            raise KvvizError(f"{len(active)} comparisons are waiting already; try again when some are done")
        own = sum(work.made_by == made_by for work in active)
        if made_by != NOBODY and own >= self.limits.waiting_per_session:
            raise KvvizError(
                f"{own} works of yours are waiting or under way, which is as many as one browser may have here; "
                "stop one of them or wait for it"
            )

    def adopt(self, records: Sequence[dict[str, Any]], owner: str = "") -> str:
        """Take in a recording (kvviz.store.files.recording.loads) as a finished comparison; returns its id."""
        with self._lock:
            texts = [json.dumps(record) for record in records]
            work = Job(new_id(), None, state="done", records=texts, origin="import", made_by=mark_of(owner))
            self._works[work.id] = work
            self._forget()
            self._changed()
        return work.id

    def may_stop(self, work_id: str, owner: str = "") -> bool:
        """Whether a work waits or is under way, and is this browser's."""
        work = self._works.get(work_id)
        return work is not None and work.active and may_change(work.made_by, owner, trusted=True)

    def stop(self, work_id: str, owner: str = "") -> None:
        """Stop a work: at once where it waits, after the step under way where it runs.

        Loading knows no steps: there the worker is ended, and a new one takes its place. Raises KvvizError where it
        is another browser's.
        """
        with self._lock:
            work = self._works.get(work_id)
            if work is None or not work.active:
                return
            if not self.may_stop(work_id, owner):
                raise KvvizError("this run belongs to another browser, which alone may stop it")
            if work_id != self._current:
                self._queue.remove(work_id)
                self._end(work, "stopped")
            elif work.state == "loading":
                self._replace_worker(work, "")
            else:
                self._link.tell({"do": "stop", "id": work_id})
                self._told_to_stop = self._told_to_stop or self._clock()

    def get(self, work_id: str) -> Job | None:
        """A work by id, one of earlier days included; None where it is unknown."""
        found = self._works.get(work_id) or self._recalled.get(work_id)
        if found is not None or self.recall is None or self._missing.get(work_id, 0) > time.monotonic():
            return found
        found = self.recall(work_id)
        with self._lock:
            if found is None:
                self._missing = {work_id: time.monotonic() + ASK_AGAIN}
                return None
            self._recalled[work_id] = found
            while len(self._recalled) > KEEP:
                self._recalled.popitem(last=False)
        return found

    def look_again(self) -> None:
        """The store has changed: what was not found may be there now."""
        self._missing = {}
        self._changed()

    def jobs(self) -> list[Job]:
        """All works that are in memory."""
        with self._lock:
            return list(self._works.values())

    def latest(self) -> Job | None:
        """The comparison that is being measured, else the next, else the one that was measured last."""
        with self._lock:
            shown = [work for work in self._works.values() if work.kind == "comparison"]
            measured = next((work for work in shown if work.id in (self._current, self._measured)), None)
            waiting = (self._works[name] for name in self._queue.order())
            following = next((work for work in waiting if work.kind == "comparison"), None)
            if self._current is None and following is not None:
                return following
            return measured or following or next(reversed(shown), None)

    def last_document(self) -> dict[str, Any] | None:
        """The document of the comparison that was finished last, None before the first."""
        with self._lock:
            compared = (work for work in reversed(self._works.values()) if work.kind == "comparison")
            return next((work.document for work in compared if work.document), None)

    # --- the line ------------------------------------------------------------------------------------------

    def ahead(self, work_id: str) -> int:
        """How many works come before this one, the one under way included."""
        return len(self._before(work_id))

    def expected_wait(self, work_id: str) -> float | None:
        """Seconds until a work's turn, by estimate; None where that of one before it, or its end, is not known."""
        with self._lock:
            if self.held_by:
                return None
            now = self._clock()
            waits = [self._left(work, now) for work in self._before(work_id)]
        return None if None in waits else sum(waits)

    def _before(self, work_id: str) -> list[Job]:
        with self._lock:
            line = [*([self._current] if self._current else []), *self._queue.order()]
            return [self._works[name] for name in line[: line.index(work_id)]] if work_id in line else []

    def _left(self, work: Job, now: float) -> float | None:
        left = work.course.left(now)
        if left is None or work.begun is not None:
            return left
        return left * self._experience[work.kind].ratio

    def _forget(self) -> None:
        finished = [work.id for work in self._works.values() if not work.active]
        surplus = [
            name
            for name in finished[: max(0, len(self._works) - KEEP)]
            if not KINDS[self._works[name].kind].kept or self.is_kept(name)
        ]
        for work_id in surplus or finished[: max(0, len(self._works) - UNKEPT)]:
            del self._works[work_id]

    def _next(self) -> None:
        """Hand the worker the next work, if it is free."""
        if self._current is not None or not self._link.up or self.worker_state != "ready":
            return
        work_id = self._queue.take()
        if work_id is None:
            return
        work = self._works[work_id]
        self._current = self._measured = work_id
        self._told_to_stop = None
        asked = {"spec": work.description(), "limits": asdict(self.limits), "earlier": list(work.earlier)}
        self._link.tell({"do": work.kind, "id": work_id, **asked})

    def _changed(self) -> None:
        self.version += 1

    def _end(self, work: Job, state: str, message: str = "") -> None:
        seconds = None if work.begun is None else round(self._clock() - work.begun, 3)
        event(log, "work_ended", id=work.id, state=state, was=work.state, seconds=seconds, records=len(work.records))
        work.state, work.message = state, message
        work.records.append(json.dumps({"t": state, "message": message}))
        self._changed()

    # --- what the worker's link tells ----------------------------------------------------------------------

    def turned(self, state: str) -> None:
        """The worker's state is another."""
        with self._lock:
            self.worker_state = state
            self._changed()

    def said(self, work_id: str, kind: str, body: str) -> None:
        """The worker has sent something."""
        with self._lock:
            if kind == "hello":
                self.device = json.loads(body)
                self.worker_state = "ready"
                event(log, "worker_ready", device=self.device.get("device_name"))
                for name in self._queue.order():
                    self._works[name].course.foresee(self.device)
            if kind in ("hello", "held"):
                self.held_by = json.loads(body).get("by", "")
            else:
                self._take(work_id, kind, body)
            self._changed()
            self._next()

    def _take(self, work_id: str, kind: str, body: str) -> None:
        work = self._works.get(work_id)
        if work is None or not work.active:
            return  # it was stopped while its worker was still loading
        self.held_by = ""
        if kind == "done":
            work.document = json.loads(body)["document"]
            self._finish(work, "done")
        elif kind in ("stopped", "failed"):
            self._finish(work, kind, json.loads(body).get("message", ""))
        else:
            work.state = "loading" if kind in ("loading", "download") else "running"
            now = self._clock()
            if work.begun is None:
                event(log, "work_begun", id=work.id)
            work.begun = now if work.begun is None else work.begun
            if work.course is not None:
                work.course.note(kind, body, now)
            work.records.append(body)

    def _finish(self, work: Job, state: str, message: str = "") -> None:
        self._current = None
        if state == "stopped" and self._leaving:
            message = LEFT
        if state == "done" and work.kind == "comparison":
            work.records.append(json.dumps({"t": "figures", "runs": headline(work.document)}))
        if state == "done":
            self._experience[work.kind].note(work.course.whole, work.course.took(self._clock()))
        self._end(work, state, message)

    def looked(self) -> None:
        """Time has passed: a work that does not end though it has to is ended with its worker."""
        with self._lock:
            work, now = self._works.get(self._current or ""), self._clock()
            if work is None:
                return
            limit = self.limit_of(work)
            if self._told_to_stop is not None and now - self._told_to_stop > GRACE:
                self._replace_worker(work, f"its step did not end within {lasting(GRACE)}")
            elif work.begun is not None and now - work.begun > limit + GRACE:
                self._replace_worker(work, f"it did not end at this server's limit of {lasting(limit)}")

    def limit_of(self, work: Job) -> float:
        """Seconds that a work may take from its loading to its end."""
        return getattr(self.limits, KINDS[work.kind].limit)

    def _replace_worker(self, work: Job, why: str) -> None:
        """End a work together with the worker that has it in hand."""
        self._current = None
        self.worker_state = "restarting"
        self._end(work, "stopped", why and f"{why}, so the measuring process was ended; a new one takes its place")
        self._link.kill()

    def gone(self, code: int) -> None:
        """The worker has ended: say so on the work that it was measuring."""
        with self._lock:
            self.held_by = ""
            if self._current is not None:
                work, self._current = self._works[self._current], None
                if self._leaving:
                    self._end(work, "stopped", NOT_BEGUN if work.state == "queued" else LEFT)
                elif work.state == "queued":  # handed over, but never begun
                    self._queue.put_back(work.id, work.made_by)
                else:
                    self._end(work, "failed", why_it_ended(code))
            self._changed()


_scheduler: Scheduler | None = None


def scheduler() -> Scheduler:
    """The one scheduler of this server process."""
    global _scheduler
    if _scheduler is None:
        _scheduler = Scheduler()
    return _scheduler


def use(other: Scheduler | None) -> None:
    """Put another scheduler in its place; tests do."""
    global _scheduler
    _scheduler = other
