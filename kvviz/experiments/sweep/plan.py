"""Estimates a sweep's duration before it starts and cuts the sweep to a time budget. Standard library only."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.base.words import lasting
from kvviz.cost.step_estimate import OPERATIONS_PER_LAYER
from kvviz.decoding.requirements import each_pass, needs
from kvviz.experiments.kind import Device, Estimate, Record
from kvviz.experiments.sweep.spec import PRESETS, Pass, SweepSpec, cell_name, cells, find_sources
from kvviz.models.catalog.rows import models

OBSERVING = 6  # launches per operation that an equivalence check adds; order of magnitude
VISIT_S = 0.3  # seconds a visit adds to its check and passes (garbage collection, a waking step); order of magnitude
PATIENCE = 1800  # seconds that a preset may take with a model before it falls back to the next smaller model


def preset_spec(preset_id: str, on: Device | None = None, **changes: Any) -> SweepSpec:
    """Turn a preset into a spec; `changes` that are not None replace its fields.

    The model is the preset's first one in the catalog that the device `on` can run within PATIENCE. If none can, it is
    the last; without `on`, it is the first.
    """
    if preset_id not in PRESETS:
        raise KvvizError(f"no preset {preset_id!r}; the presets are {', '.join(PRESETS)}")
    row = PRESETS[preset_id]
    grid = ("modes", "prompt_tokens", "new_tokens", "batches", "repeats")
    given = {name: value for name, value in changes.items() if value is not None}
    settings = {**{name: getattr(row, name) for name in grid}, **given, "preset": row.id}
    if "models" in given:
        return SweepSpec(**settings)
    there = [model for model in row.models if model in models()]
    specs = [SweepSpec(models=(model,), **settings) for model in there]
    return next((spec for spec in specs if on is None or _runs_on(spec, on)), specs[-1])


def _runs_on(spec: SweepSpec, device: Device) -> bool:
    """Whether every cell fits the device's memory and the whole sweep takes at most PATIENCE."""
    sources = find_sources(spec)
    free = device.get("free_bytes", device.get("total_bytes", math.inf))
    fits = all(needs(sources[cell.model], spec.work(cell)).total <= free for cell in cells(spec))
    return fits and (estimate(spec, device) or 0.0) <= PATIENCE


@dataclass(frozen=True)
class Guess:
    """Estimated seconds of one pass for each (cell, mode), and of each cell's equivalence check."""

    passes: dict[tuple[int, str], float]
    proofs: dict[int, float]


def guess(spec: SweepSpec, device: Device | None) -> Guess | None:
    """Estimate the seconds of passes and equivalence checks from the device's measured rates.

    None for a device without rates or a model whose size is unknown until it is loaded.
    """
    sources = find_sources(spec)
    if not device or "rates" not in device:
        return None
    passes: dict[tuple[int, str], float] = {}
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


def estimate(spec: SweepSpec, device: Device | None) -> float | None:
    """Estimated seconds of the whole sweep, with each cell's equivalence check and passes; None if unknown."""
    found = guess(spec, device)
    return None if found is None else _Bill(spec, found, ()).total(range(len(cells(spec))), spec.repeats)


@dataclass(frozen=True)
class Cut:
    """The part of a sweep that fits a budget, in words too: `repeats` of every cell except `left_out`, in `seconds`."""

    repeats: int
    left_out: tuple[int, ...]
    seconds: float | None
    words: str


def within(spec: SweepSpec, budget_s: float | None, device: Device | None, done: Collection[Pass] = ()) -> Cut:
    """Cut a sweep to a budget (seconds): first reduce the repeats, then leave out the most expensive cells.

    One repeat of the cheapest cell always stays. Passes in `done`, from an earlier start, cost nothing.
    """
    found = guess(spec, device)
    if found is None:
        return Cut(spec.repeats, (), None, "how long it will take is not known before it starts")
    bill = _Bill(spec, found, frozenset(done))
    every = tuple(cell.index for cell in cells(spec))
    if budget_s is None:
        return _cut(spec, bill, every, spec.repeats, math.inf)
    for repeats in range(spec.repeats, 0, -1):
        if bill.total(every, repeats) <= budget_s:
            return _cut(spec, bill, every, repeats, budget_s)
    kept = sorted(every, key=lambda cell: (bill.cell(cell, 1), cell))
    while len(kept) > 1 and bill.total(kept, 1) > budget_s:
        kept.pop()
    return _cut(spec, bill, kept, 1, budget_s)


class _Bill:
    """Estimated seconds of cells: the equivalence check, the passes not done yet and each visit's overhead."""

    def __init__(self, spec: SweepSpec, guess: Guess, done: Collection[Pass]) -> None:
        self._modes, self._guess, self._done = spec.modes, guess, done
        self._proven = {cell for cell, _, _ in done}

    def cell(self, cell: int, repeats: int) -> float:
        proof = 0.0 if cell in self._proven else self._guess.proofs[cell]
        rounds = [[mode for mode in self._modes if (cell, mode, n) not in self._done] for n in range(repeats)]
        passes = sum(self._guess.passes[cell, mode] for missing in rounds for mode in missing)
        return proof + passes + VISIT_S * sum(map(bool, rounds))

    def total(self, kept: Iterable[int], repeats: int) -> float:
        return sum(self.cell(cell, repeats) for cell in kept)


def _cut(spec: SweepSpec, bill: _Bill, kept: Collection[int], repeats: int, budget: float) -> Cut:
    left_out = tuple(cell.index for cell in cells(spec) if cell.index not in kept)
    seconds = bill.total(kept, repeats)
    parts = [f"about {lasting(seconds)} by estimate"]
    if repeats < spec.repeats:
        parts.append(f"{repeats} of {spec.repeats} repeats")
    if left_out:
        names = ", ".join(cell_name(spec, cells(spec)[index]) for index in left_out[:4])
        more = f" and {len(left_out) - 4} more" if len(left_out) > 4 else ""
        parts.append(f"without {names}{more}")
    if seconds > budget:
        parts.append(f"which is still more than the {lasting(budget)} given")
    return Cut(repeats, left_out, seconds, ", ".join(parts))


def estimated(spec: SweepSpec, device: Device, earlier: Sequence[Record] = ()) -> Estimate | None:
    """Estimate for the queue: the sweep cut to its own budget, without the passes of an interrupted run."""
    done = {(record["cell"], record["mode"], record["round"]) for record in earlier if record["t"] == "cell_pass"}
    seconds = within(spec, spec.budget_s, device, done).seconds
    return None if seconds is None else Estimate(seconds)
