"""How long jobs will take: by the device's rates, corrected by how earlier jobs of their kind turned out.

Standard library only.
"""

from collections import defaultdict

from kvviz.experiments.eta import PastDurations
from kvviz.experiments.kind import Device
from kvviz.experiments.registry import KINDS
from kvviz.server.job import Job


class Forecast:
    """Estimates jobs, and learns from each that ends."""

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
            self._past[job.kind].note(job.countdown.whole, job.countdown.took(now))
