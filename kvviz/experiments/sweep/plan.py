"""What a sweep will take, and what of it fits a budget, before it begins. Standard library only."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.base.words import lasting
from kvviz.cost.flops import OPERATIONS_PER_LAYER
from kvviz.decoding.requirements import each_pass, needs
from kvviz.experiments.kind import Device, Estimate, Record
from kvviz.experiments.sweep.spec import PRESETS, Pass, SweepSpec, cell_name, cells, find_sources
from kvviz.models.catalog.rows import models

OBSERVING = 6  # launches that it takes to note an operation's results in a proof; order of magnitude
VISIT_S = 0.3  # seconds of a visit that are neither proof nor pass: garbage collected, a step to wake up; likewise
PATIENCE = 1800  # seconds that a preset may take with a model before the next smaller one is taken


def preset_spec(preset_id: str, on: Device | None = None, **changes: Any) -> SweepSpec:
    """A preset as a spec; `changes` replace its fields, those that are None apart.

    The model is the first of the preset's that the catalog has and, where a device is given (`on`), that it can do in
    half an hour; the last one else.
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
    """Whether every cell fits the device's memory and all of them the time that a class has."""
    sources = find_sources(spec)
    free = device.get("free_bytes", device.get("total_bytes", math.inf))
    fits = all(needs(sources[cell.model], spec.work(cell)).total <= free for cell in cells(spec))
    return fits and (estimate(spec, device) or 0.0) <= PATIENCE


@dataclass(frozen=True)
class Guess:
    """Seconds by estimate: of one pass of each (cell, mode), and of each cell's proof."""

    passes: dict[tuple[int, str], float]
    proofs: dict[int, float]


def guess(spec: SweepSpec, device: Device | None) -> Guess | None:
    """What passes and proofs take, from the device's measured rates.

    None where nothing is known to estimate from: a device without rates, a model whose size only loading tells.
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
    """Seconds that the whole sweep will take, by estimate: each cell's proof, then its passes; None if unknown."""
    found = guess(spec, device)
    return None if found is None else _Bill(spec, found, ()).total(range(len(cells(spec))), spec.repeats)


@dataclass(frozen=True)
class Cut:
    """What of a sweep fits a budget: `repeats` of every cell but those `left_out`, in `seconds`; and that in words."""

    repeats: int
    left_out: tuple[int, ...]
    seconds: float | None
    words: str


def within(spec: SweepSpec, budget_s: float | None, device: Device | None, done: Collection[Pass] = ()) -> Cut:
    """Cut a sweep to a budget (seconds): fewer repeats first, then the dearest cells are left out.

    One repeat of the cheapest cell always stays. `done` passes of an earlier start cost nothing.
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
    """What cells cost by estimate (seconds): a proof, the passes not done yet, and what each visit takes besides."""

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
    """The same for the queue: cut to its own budget, without the passes of an interrupted run."""
    done = {(record["cell"], record["mode"], record["round"]) for record in earlier if record["t"] == "cell_pass"}
    seconds = within(spec, spec.budget_s, device, done).seconds
    return None if seconds is None else Estimate(seconds)
