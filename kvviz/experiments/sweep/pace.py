"""Estimates what a sweep's passes take, and corrects that by measurements. Standard library only."""

import statistics
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kvviz.cost.step_estimate import OPERATIONS_PER_LAYER
from kvviz.decoding.modes import mode_named
from kvviz.decoding.requirements import each_pass
from kvviz.experiments.kind import Device
from kvviz.experiments.sweep.spec import Pass, SweepSpec, cells, find_sources

OBSERVING = 6  # launches per operation that an equivalence check adds; order of magnitude
VISIT_S = 0.3  # seconds a visit adds to its check and passes (garbage collection, a waking step); order of magnitude

Key = tuple[int, str]  # cell, mode


@dataclass(frozen=True)
class Guess:
    """What one pass of each (cell, mode) takes, and each cell's equivalence check: seconds, or work in another unit."""

    passes: dict[Key, float]
    proofs: dict[int, float]
    in_seconds: bool = True


def guess(spec: SweepSpec, device: Device | None) -> Guess | None:
    """Estimate the seconds of passes and checks from the device's rates; None without them or for an unknown size."""
    sources = find_sources(spec)
    if not device or "rates" not in device:
        return None
    passes: dict[Key, float] = {}
    proofs: dict[int, float] = {}
    for cell in cells(spec):
        source = sources[cell.model]
        if source.params is None or source.spec is None:
            return None
        each = each_pass(source, spec.work(cell), device)
        passes |= {(cell.index, mode): seconds for mode, seconds in each.items()}
        operations = cell.new_tokens * len(source.spec.layers) * OPERATIONS_PER_LAYER * len(spec.modes)
        proofs[cell.index] = sum(each.values()) + operations * OBSERVING * device["rates"]["launch"]
    return Guess(passes, proofs)


def tokens_fed(spec: SweepSpec) -> Guess:
    """Count the tokens that passes and equivalence checks feed, as a measure of work for a model of unknown size."""
    passes: dict[Key, float] = {}
    for cell in cells(spec):
        steps, prompt = cell.new_tokens, cell.prompt_tokens
        for mode in spec.modes:
            again = steps - 1 if mode_named(mode).caches else prompt * (steps - 1) + steps * (steps - 1) // 2
            passes[cell.index, mode] = float(cell.batch * (prompt + again))
    proofs = {cell.index: sum(passes[cell.index, mode] for mode in spec.modes) for cell in cells(spec)}
    return Guess(passes, proofs, in_seconds=False)


def missing(spec: SweepSpec, kept: Iterable[int], repeats: int, done: Collection[Pass]) -> dict[Key, int]:
    """Count the passes that each (cell, mode) of the kept cells still lacks."""
    return {
        (cell, mode): sum((cell, mode, number) not in done for number in range(repeats))
        for cell in kept
        for mode in spec.modes
    }


class Pace:
    """Estimates the remaining time: a guess for each pass and equivalence check, corrected by those measured so far.

    With guesses that are not in seconds, estimates are None until something has been timed.
    """

    def __init__(self, guess: Guess) -> None:
        self._guess = guess
        self._passes: dict[Key, list[float]] = {}
        self._proofs: dict[int, float] = {}
        self._besides: list[float] = [VISIT_S]

    def passed(self, key: Key, seconds: float) -> None:
        """Record the seconds of a timed pass."""
        self._passes.setdefault(key, []).append(seconds)

    def proven(self, cell: int, seconds: float) -> None:
        """Record the seconds of a cell's equivalence check."""
        self._proofs[cell] = seconds

    def visited(self, besides: float) -> None:
        """Record the seconds that a visit took besides its check and its passes."""
        self._besides.append(besides)

    def one(self, key: Key) -> float | None:
        """Seconds of a pass: the median of its measurements or, before any, its guess corrected by other passes."""
        if key in self._passes:
            return statistics.median(self._passes[key])
        measured = {other: statistics.median(found) for other, found in self._passes.items()}
        return self._righted(self._guess.passes[key], measured, self._guess.passes)

    def proof(self, cell: int) -> float | None:
        """Seconds of a cell's equivalence check: its guess corrected by other checks, or else the sum of its passes."""
        if self._proofs or not self._passes:
            return self._righted(self._guess.proofs[cell], self._proofs, self._guess.proofs)
        return _sum(self.one(key) for key in self._guess.passes if key[0] == cell)

    def _righted(self, guessed: float, measured: Mapping, guesses: Mapping) -> float | None:
        if not measured:
            return guessed if self._guess.in_seconds else None
        return guessed * sum(measured.values()) / sum(guesses[key] for key in measured)

    def left(self, passes: Mapping[Key, int], unproven: Iterable[int]) -> float | None:
        """Seconds of the given number of passes per key, the unproven cells' checks and the visits; None if unknown."""
        visits: dict[int, int] = {}
        for (cell, _), count in passes.items():
            visits[cell] = max(visits.get(cell, 0), count)
        repeated = [self.one(key) for key, count in passes.items() for _ in range(count)]
        found = _sum([*repeated, *map(self.proof, unproven)])
        return None if found is None else found + statistics.fmean(self._besides) * sum(visits.values())


def _sum(parts: Iterable[float | None]) -> float | None:
    """The sum; None if a part is unknown."""
    parts = list(parts)
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
