"""How long jobs will take: by the device's rates, corrected by how earlier jobs of their kind turned out.

Standard library only.
"""

from collections import defaultdict

from kvviz.experiments.eta import Experience
from kvviz.experiments.kind import Device, unknown
from kvviz.experiments.registry import KINDS
from kvviz.server.job import Job


class Forecast:
    """Estimates jobs, and learns from each that ends."""

    def __init__(self) -> None:
        self._experience = defaultdict[str, Experience](Experience)  # by kind

    def estimate(self, job: Job, device: Device | None) -> None:
        """Estimate a job that waits: from the device's rates, or from earlier jobs where no rate tells."""
        if job.course is None:
            return
        if KINDS[job.kind].estimate is unknown:
            job.course.expect(self._experience[job.kind].usual)
        job.course.foresee(device)

    def left(self, job: Job, now: float) -> float | None:
        """Seconds until a job ends, once its turn has come; None if nothing tells."""
        left = None if job.course is None else job.course.left(now)
        if left is None or job.begun is not None:
            return left
        return left * self._experience[job.kind].ratio

    def learn(self, job: Job, now: float) -> None:
        """Compare what a finished job took with its estimate."""
        if job.course is not None:
            self._experience[job.kind].note(job.course.whole, job.course.took(now))
