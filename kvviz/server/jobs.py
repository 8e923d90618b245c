"""The jobs that are in memory: all active ones, finished ones for a while, older ones recalled from the store.

A job is one experiment in the queue: who asked for it, its state and its records. Standard library only.
"""

import hashlib
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvviz.experiments.eta import Countdown, PastDurations
from kvviz.experiments.kind import Device, Record, Spec
from kvviz.experiments.registry import KINDS
from kvviz.models.catalog.rows import models

if TYPE_CHECKING:
    from kvviz.server.persister import Persister

ACTIVE = ("queued", "loading", "running")
FINISHED_IN_MEMORY = 40  # once the archive has them
UNSAVED_IN_MEMORY = 200  # while the archive does not have them: a disk may be full for a while
RECALL_AGAIN_S = 2.0  # seconds before the archive is asked again for an id that it did not have

NOBODY = ""  # the mark of what no browser owns

Clock = Callable[[], float]


def mark_of(name: str) -> str:
    """The mark that is stored in place of a browser's secret name; "" for no name. A random name can't be guessed."""
    return hashlib.sha256(f"kvviz owner {name}".encode()).hexdigest()[:32] if name else NOBODY


def may_change(made_by: str, owner: str, *, trusted: bool) -> bool:
    """Whether a browser may stop, rename or delete what `made_by` marks.

    It may always change its own. What belongs to nobody (made on the command line, or before runs had owners) it may
    change if everyone who reaches the server is `trusted`.
    """
    return trusted if made_by == NOBODY else made_by == mark_of(owner)


@dataclass
class Job:
    """An experiment with its state and the records so far, each one JSON text; `made_by` is its owner's mark.

    `cut_off`: a server died in the middle of it, so viewers may hold records that were never stored.
    """

    id: str
    spec: Spec | None  # None for an imported recording and for a job of an earlier day
    state: str = "queued"
    message: str = ""
    records: list[str] = field(default_factory=list)
    document: Record | None = None
    kind: str = "comparison"  # its row in kvviz.experiments.registry
    origin: str = "here"
    earlier: Sequence[Record] = ()  # records of the interrupted sweep that this job continues
    made_by: str = NOBODY
    cut_off: bool = False
    key: str | None = field(default=None, repr=False)  # for an endpoint; gone when the job has ended
    asked_at: float | None = None  # when it was queued, on the monotonic clock
    begun: float | None = None  # when the worker began with it, on the monotonic clock
    restarts: int = 0  # how often its machine was lost, and it began again
    elsewhere: str | None = ""  # the weights that another machine takes, "" if its spec says; None: it stays here

    def __post_init__(self) -> None:
        self.countdown = None if self.spec is None else Countdown(self.spec, self.earlier)

    def begin_again(self, why: str) -> None:
        """Drop the records of a lost machine and queue the job again; `why` is a sentence for those who wait for it."""
        self.records, self.begun, self.message = [], None, why
        self.countdown = None if self.spec is None else Countdown(self.spec, self.earlier)
        self.state = "queued"
        self.restarts += 1  # last: a change of this number tells those who keep records to drop the old ones

    def description(self) -> Record:
        """The spec as plain values; without a spec, what the first record says of it."""
        if self.spec is not None:
            return self.spec.to_dict()
        return json.loads(self.records[0]).get("spec", {}) if self.records else {}

    def log_fields(self) -> dict[str, object]:
        """What a log may hold of it: its id and numbers. A model outside the catalog may be someone's path."""
        asked = self.description()
        fields: dict[str, object] = {"id": self.id, "kind": self.kind}
        fields |= {name: asked[name] for name in ("modes", "new_tokens", "batch", "repeats") if name in asked}
        if model := asked.get("model"):
            fields["model"] = model if model in models() else "of the user's own"
        return fields

    @property
    def active(self) -> bool:
        """Whether it waits or is being measured."""
        return self.state in ACTIVE


class Forecast:
    """Estimates how long jobs take by the device's rates, and learns from how earlier ones of their kind turned out."""

    def __init__(self) -> None:
        self._past = defaultdict[str, PastDurations](PastDurations)  # by kind

    def estimate(self, job: Job, device: Device | None) -> None:
        """Estimate a job that waits: from the device's rates, or from earlier jobs where no rate tells."""
        if job.countdown is None:
            return
        if KINDS[job.kind].estimate is None:
            job.countdown.assume(self._past[job.kind].mean)
        job.countdown.estimate(device)

    def left(self, job: Job, now: float) -> float | None:
        """Seconds until a job ends, once its turn has come; None if nothing tells."""
        left = None if job.countdown is None else job.countdown.left(now)
        if left is None or job.begun is not None:
            return left
        return left * self._past[job.kind].correction

    def learn(self, job: Job, now: float) -> None:
        """Compare what a finished job took with its estimate."""
        if job.countdown is not None:
            self._past[job.kind].note(job.countdown.foreseen, job.countdown.took(now))


class Jobs:
    """Jobs by id, in the order in which they were submitted."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jobs: dict[str, Job] = {}
        self._recalled: dict[str, Job] = {}
        self._not_found: dict[str, float] = {}  # when to ask the archive again, by id
        self._lock = threading.Lock()  # of what was recalled; page scripts and the feed ask at once
        self.archive: Persister | None = None  # what keeps jobs beyond the life of this process

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self._jobs.values()))

    def __getitem__(self, job_id: str) -> Job:
        return self._jobs[job_id]

    def present(self, job_id: str | None) -> Job | None:
        """A job that was submitted to this process, None for any other."""
        return self._jobs.get(job_id or "")

    def get(self, job_id: str) -> Job | None:
        """A job by id, recalled from the archive if need be; None for an unknown id."""
        found = self._jobs.get(job_id) or self._recalled.get(job_id)
        if found is not None or self.archive is None or self._not_found.get(job_id, 0.0) > self._clock():
            return found
        found = self.archive.recall(job_id)
        with self._lock:
            if found is None:
                now = self._clock()
                self._not_found = {name: then for name, then in self._not_found.items() if then > now}
                self._not_found[job_id] = now + RECALL_AGAIN_S
            else:
                self._recalled[job_id] = found
                if len(self._recalled) > FINISHED_IN_MEMORY:
                    del self._recalled[next(iter(self._recalled))]
        return found

    def ask_archive_again(self) -> None:
        """Forget which ids the archive did not have: it has changed."""
        with self._lock:
            self._not_found = {}

    def add(self, job: Job) -> None:
        """Take a job in, and drop the oldest finished ones beyond the limits."""
        self._jobs[job.id] = job
        finished = [job for job in self._jobs.values() if not job.active]
        saved = [job for job in finished[: self._beyond(FINISHED_IN_MEMORY)] if self._is_saved(job)]
        for old in saved or finished[: self._beyond(UNSAVED_IN_MEMORY)]:
            del self._jobs[old.id]

    def _beyond(self, limit: int) -> int:
        return max(0, len(self._jobs) - limit)

    def _is_saved(self, job: Job) -> bool:
        """Whether nothing is lost when it leaves memory; a kind that is not kept is measured again in no time."""
        return not KINDS[job.kind].kept or self.archive is None or self.archive.has(job.id)
