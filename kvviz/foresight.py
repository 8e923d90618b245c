"""How long works take and have left: estimates from a device's rates, set right as they go. Standard library only.

What can't be estimated is None, and so is every sum that it is part of.
"""

import json
from collections import deque
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from kvviz.cost import estimated
from kvviz.errors import KvvizError
from kvviz.looks import CachesSpec, Look, LookSpec, RoofSpec
from kvviz.plan import each_pass
from kvviz.raced import TEXT_TOKENS
from kvviz.records import ComparisonSpec
from kvviz.roofline import foreseen
from kvviz.servelooks import ArrivalsSpec, SharingSpec, TalkSpec
from kvviz.sources import Source, find_source
from kvviz.sweeps import Pass, SweepSpec, lasting, within

Spec = ComparisonSpec | SweepSpec | Look
Device = Mapping[str, Any]
ENOUGH = 0.05  # of a comparison: from this share on, what it took so far says more than the estimate


class Course:
    """The time that one work takes: its estimate, set right by the records that its worker sends.

    Seconds are a clock's that never steps back. Loading the model is not among them.
    """

    def __init__(self, spec: Spec, done: Collection[Pass] = ()) -> None:
        self._spec, self._done_before = spec, done
        self._passes: dict[str, float] | None = None  # estimates, by mode
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
                self._estimate(device)

    def _estimate(self, device: Device) -> None:
        if isinstance(self._spec, SweepSpec):
            self.whole = within(self._spec, self._spec.budget_s, device, self._done_before).seconds
            return
        if isinstance(self._spec, LookSpec | ArrivalsSpec):
            return  # noting every line is what takes the time, and no rate tells of that: see `expect`
        source = find_source(self._spec.model, self._spec.weights)
        if isinstance(self._spec, RoofSpec):
            shape = estimated(source.config)
            self.whole = shape and foreseen(shape, self._spec, device["rates"])
            return
        if isinstance(self._spec, CachesSpec):
            self.whole = racing_seconds(source, self._spec, device)
            return
        if isinstance(self._spec, SharingSpec | TalkSpec):
            self.whole = serving_seconds(self._spec, source, device)
        elif source.params is not None and source.spec is not None:
            self._passes = each_pass(source, self._spec, device)
            self.whole = sum(self._passes.values()) * (self._spec.warmup + self._spec.repeats)

    def note(self, kind: str, body: str, now: float) -> None:
        """Take note of a record: how far the work is."""
        if kind in ("started", "sweep_started", "look"):
            self._begun = now
        elif kind == "progress":
            left = json.loads(body).get("left_s")
            self._left = None if left is None else (left, now)
        elif self._passes is not None and kind == "proof":
            self._cover(sum(self._passes.values()) / self._spec.new_tokens, now)
        elif self._passes is not None and kind == "pass":
            self._cover(self._passes.get(self._running or "", 0.0), now)
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


def racing_seconds(source: Source, spec: CachesSpec, device: Device) -> float | None:
    """Seconds that a race of cache designs takes by estimate; None for a model of unknown size."""
    if source.params is None or source.spec is None:
        return None
    work = spec.work()
    passes = each_pass(source, work, device)
    forced = replace(work, prompt=None, prompt_tokens=1, new_tokens=TEXT_TOKENS, batch=1, modes=work.modes[1:])
    books = sum(passes[name] for name in spec.designs)
    return sum(passes.values()) * (1 + spec.repeats) + books + sum(each_pass(source, forced, device).values())


def serving_seconds(spec: SharingSpec | TalkSpec, source: Source, device: Device) -> float | None:
    """Seconds of its prefills and answers at the most, every one cold; None where model or device tell too little."""
    if source.params is None or source.spec is None or not device.get("rates"):
        return None
    one = replace(spec.work(), batch=1, new_tokens=spec.new_tokens)
    return spec.prefills * sum(each_pass(source, one, device).values())


class Experience:
    """How estimates of comparisons have turned out of late: what they took over what was foreseen."""

    def __init__(self, remembered: int = 8) -> None:
        self._seen: deque[tuple[float, float]] = deque(maxlen=remembered)

    def note(self, foreseen: float | None, took: float | None) -> None:
        """Take note of a comparison that ran to its end."""
        if foreseen and took is not None:
            self._seen.append((foreseen, took))

    @property
    def ratio(self) -> float:
        """1 before the first."""
        return sum(took for _, took in self._seen) / sum(foreseen for foreseen, _ in self._seen) if self._seen else 1.0

    @property
    def usual(self) -> float | None:
        """Seconds that one took, in the mean; None before the first."""
        return sum(took for _, took in self._seen) / len(self._seen) if self._seen else None


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th."""
    last = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{last}"


def in_line(ahead: int, wait_s: float | None, held_by: str = "") -> str:
    """A place in the line, in words; the same as the live page says."""
    if held_by:
        return f"Waiting: {held_by}"
    if not ahead:
        return "Waiting for the device"
    return f"{ordinal(ahead)} in line, " + ("how long is not known" if wait_s is None else f"about {lasting(wait_s)}")
