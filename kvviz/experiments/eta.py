"""Estimates how long experiments take and have left, from a device's rates corrected by measurements.

An unknown duration is None, and so is every sum with an unknown part. Standard library only.
"""

import json
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from kvviz.base.errors import KvvizError
from kvviz.base.words import lasting, ordinal
from kvviz.experiments.kind import Device, Estimate, Record, Spec
from kvviz.experiments.registry import kind_of

ENOUGH = 0.05  # share of a comparison after which its measured pace counts more than the estimate
BEFORE = ("loading", "download")  # records before the first measurement


def seconds_of(spec: Spec, device: Device | None) -> float | None:
    """Estimate an experiment's seconds; None if unknown. Raises KvvizError for a model that does not exist."""
    estimate = kind_of(spec).estimated(spec, device)
    return None if estimate is None else estimate.whole


class Countdown:
    """Tracks the time one experiment takes and has left: its estimate, corrected by its worker's records.

    Times are monotonic clock readings in seconds. Loading the model does not count.
    """

    def __init__(self, spec: Spec, earlier: Sequence[Record] = ()) -> None:
        self._spec, self._earlier = spec, earlier
        self._device: Device | None = None
        self._estimate: Estimate | None = None
        self.whole: float | None = None
        self.foreseen: float | None = None  # the whole as it was estimated before its turn came
        self._begun: float | None = None
        self._covered = 0.0  # seconds of `whole` whose work the records report as done
        self._mode: str | None = None  # of the current pass
        self._told: tuple[float, float] | None = None  # seconds left as the experiment reported, and when
        self._slowness = 1.0

    def estimate(self, device: Device | None) -> None:
        """Estimate the whole once; it stays None without a device's rates or for a model of unknown size."""
        if self.whole is None:
            self._device = device
            self._estimate_from(self._earlier)
            self.foreseen = self.whole

    def _estimate_from(self, records: Sequence[Record]) -> None:
        with suppress(KvvizError):  # a deleted model: its job fails when its turn comes, and says so
            self._estimate = kind_of(self._spec).estimated(self._spec, self._device, records)
            self.whole = None if self._estimate is None else self._estimate.whole

    def assume(self, seconds: float | None) -> None:
        """Use this kind's usual duration as the whole, unless an estimate exists."""
        self.whole = self.foreseen = seconds if self.whole is None else self.whole

    def note(self, kind: str, body: str, now: float) -> None:
        """Update the progress from a record."""
        if self._begun is None and kind not in BEFORE:
            self._begun = now
        if kind == "progress":
            left = json.loads(body).get("left_s")
            self._told = None if left is None else (left, now)
        elif self._estimate is not None and kind == "predicted":
            self._estimate_from([*self._earlier, json.loads(body)])
        elif self._estimate is not None and kind in self._estimate.records:
            self._cover(self._estimate.records[kind], now)
        elif self._estimate is not None and kind == "pass":
            self._cover(self._estimate.passes.get(self._mode or "", 0.0), now)
            self._mode = json.loads(body)["mode"]

    def _cover(self, seconds: float, now: float) -> None:
        self._covered += seconds
        if self._begun is not None and self.whole and self._covered > ENOUGH * self.whole:
            self._slowness = (now - self._begun) / self._covered

    def left(self, now: float) -> float | None:
        """Seconds left; None if unknown."""
        if self._told is not None:
            return max(0.0, self._told[0] - (now - self._told[1]))
        if self.whole is None:
            return None
        return max(0.0, self.whole * self._slowness - (self.took(now) or 0.0))

    def took(self, now: float) -> float | None:
        """Seconds since the first measurement; None before it."""
        return None if self._begun is None else now - self._begun


class PastDurations:
    """Remembers how long the latest experiments of one kind took and what their estimates were."""

    def __init__(self, remembered: int = 8) -> None:
        self._past: deque[tuple[float | None, float]] = deque(maxlen=remembered)

    def note(self, estimated: float | None, took: float | None) -> None:
        """Record a finished experiment; `estimated` is None if it had no estimate."""
        if took is not None:
            self._past.append((estimated, took))

    @property
    def correction(self) -> float:
        """The factor that would have corrected the past estimates; 1 before the first."""
        known = [(estimated, took) for estimated, took in self._past if estimated]
        return sum(took for _, took in known) / sum(estimated for estimated, _ in known) if known else 1.0

    @property
    def mean(self) -> float | None:
        """Mean seconds of the remembered experiments; None before the first."""
        return sum(took for _, took in self._past) / len(self._past) if self._past else None


def in_line(ahead: int, wait_s: float | None, held_by: str = "") -> str:
    """Describe a place in the queue in words."""
    if held_by:
        return f"Waiting: {held_by}"
    if not ahead:
        return "Waiting for the device"
    if wait_s is None:
        return f"{ordinal(ahead)} in line, how long is not known"
    # a run that takes longer than its estimate has no seconds left by it
    return f"{ordinal(ahead)} in line, " + (f"about {lasting(wait_s)}" if wait_s >= 1 else "soon")
