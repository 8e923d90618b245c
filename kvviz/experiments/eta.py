"""How long experiments take and have left, estimated from a device's rates and corrected as they go.

Standard library only.

What can't be estimated is None, and so is every sum that it is part of.
"""

import json
from collections import deque
from contextlib import suppress

from kvviz.base.errors import KvvizError
from kvviz.base.words import lasting, ordinal
from kvviz.experiments.kind import Device, Estimate, Passes, Spec
from kvviz.experiments.registry import kind_of

ENOUGH = 0.05  # of a comparison: from this share on, what it took so far says more than the estimate


def seconds_of(spec: Spec, device: Device | None) -> float | None:
    """Seconds that an experiment takes by estimate; None where nothing is known to estimate from.

    Raises KvvizError for a model that is not there.
    """
    found = kind_of(spec).estimate(spec, device, ()) if device and device.get("rates") else None
    return None if found is None else found.whole


class Course:
    """The time that one experiment takes: its estimate, set right by the records that its worker sends.

    Seconds are a clock's that never steps back. Loading the model is not among them.
    """

    def __init__(self, spec: Spec, done: Passes = ()) -> None:
        self._spec, self._done_before = spec, done
        self._estimate: Estimate | None = None
        self.whole: float | None = None
        self._begun: float | None = None
        self._covered = 0.0  # of `whole`, by the records
        self._running: str | None = None
        self._left: tuple[float, float] | None = None  # what a sweep said it has left, and when
        self._slowness = 1.0

    def foresee(self, device: Device | None) -> None:
        """Make the estimate, once; without a device, or for a model whose size only loading tells, there is none."""
        if self.whole is None and device is not None and device.get("rates"):
            with suppress(KvvizError):  # a model that is gone: whose turn it is, is told
                self._estimate = kind_of(self._spec).estimate(self._spec, device, self._done_before)
                self.whole = self._estimate and self._estimate.whole

    def note(self, kind: str, body: str, now: float) -> None:
        """Take note of a record: how far the work is."""
        if kind in ("started", "sweep_started", "look"):
            self._begun = now
        elif kind == "progress":
            left = json.loads(body).get("left_s")
            self._left = None if left is None else (left, now)
        elif self._estimate is not None and kind == "proof":
            self._cover(sum(self._estimate.passes.values()) / self._estimate.steps, now)
        elif self._estimate is not None and kind == "pass":
            self._cover(self._estimate.passes.get(self._running or "", 0.0), now)
            self._running = json.loads(body)["mode"]

    def _cover(self, seconds: float, now: float) -> None:
        self._covered += seconds
        if self._begun is not None and self.whole and self._covered > ENOUGH * self.whole:
            self._slowness = (now - self._begun) / self._covered

    def expect(self, seconds: float | None) -> None:
        """Where there is no estimate: what works of this kind took before."""
        self.whole = seconds if self.whole is None else self.whole

    def left(self, now: float) -> float | None:
        """Seconds that are left of it."""
        if self._left is not None:
            return max(0.0, self._left[0] - (now - self._left[1]))
        if self.whole is None:
            return None
        spent = 0.0 if self._begun is None else now - self._begun
        return max(0.0, self.whole * self._slowness - spent)

    def took(self, now: float) -> float | None:
        """Seconds since it began to be measured."""
        return None if self._begun is None else now - self._begun


class Experience:
    """How estimates of one kind have turned out of late: what experiments took over what was foreseen."""

    def __init__(self, remembered: int = 8) -> None:
        self._seen: deque[tuple[float | None, float]] = deque(maxlen=remembered)

    def note(self, foreseen: float | None, took: float | None) -> None:
        """Take note of one that ran to its end; `foreseen` is None where there was no estimate."""
        if took is not None:
            self._seen.append((foreseen, took))

    @property
    def ratio(self) -> float:
        """1 before the first."""
        known = [(foreseen, took) for foreseen, took in self._seen if foreseen]
        return sum(took for _, took in known) / sum(foreseen for foreseen, _ in known) if known else 1.0

    @property
    def usual(self) -> float | None:
        """Seconds that one took, in the mean; None before the first."""
        return sum(took for _, took in self._seen) / len(self._seen) if self._seen else None


def in_line(ahead: int, wait_s: float | None, held_by: str = "") -> str:
    """A place in the line, in words."""
    if held_by:
        return f"Waiting: {held_by}"
    if not ahead:
        return "Waiting for the device"
    return f"{ordinal(ahead)} in line, " + ("how long is not known" if wait_s is None else f"about {lasting(wait_s)}")
