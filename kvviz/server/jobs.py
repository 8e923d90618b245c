"""The jobs that are in memory: all active ones, finished ones for a while, older ones recalled from the store.

Standard library only.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from kvviz.experiments.registry import KINDS
from kvviz.server.job import Job

FINISHED_IN_MEMORY = 40  # once the archive has them
UNSAVED_IN_MEMORY = 200  # while the archive does not have them: a disk may be full for a while
RECALL_AGAIN_S = 2.0  # seconds before the archive is asked again for an id that it did not have

Clock = Callable[[], float]


class Archive(Protocol):
    """Keeps jobs beyond the life of this process: the persister."""

    @property
    def problem(self) -> str:
        """Why jobs can't be written at present, in a sentence; empty while they can."""

    def has(self, job_id: str) -> bool:
        """Whether everything of a finished job is stored."""

    def recall(self, job_id: str) -> Job | None:
        """A job of an earlier day; None if it was never stored."""


class Jobs:
    """Jobs by id, in the order in which they were submitted."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jobs: dict[str, Job] = {}
        self._recalled: dict[str, Job] = {}
        self._not_found: dict[str, float] = {}  # when to ask the archive again, by id
        self._lock = threading.Lock()  # of what was recalled; page scripts and the feed ask at once
        self.archive: Archive | None = None

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
