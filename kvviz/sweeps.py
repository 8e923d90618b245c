"""A sweep: the same comparison over a grid of models, lengths, batches and precisions. Standard library only.

What is asked for, what it will take, and the rows that its records fold into; `kvviz.sweeping` does the measuring.
"""

import math
import statistics
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from typing import Any

from kvviz.catalog import Preset, models, presets
from kvviz.cost import OPERATIONS_PER_LAYER
from kvviz.errors import KvvizError
from kvviz.measure import quartiles
from kvviz.modes import check_modes, mode_named
from kvviz.plan import each_pass, needs
from kvviz.records import ComparisonSpec, Sampling
from kvviz.report import figures, reference_mode
from kvviz.sources import Source, find_source

MOST_CELLS = 200
LONGEST_BUDGET = 7 * 86_400  # seconds
OBSERVING = 6  # launches that it takes to note an operation's results in a proof; order of magnitude
VISIT_S = 0.3  # seconds of a visit that are neither proof nor pass: garbage collected, a step to wake up; likewise
PATIENCE = 1800  # seconds that a preset may take with a model before the next smaller one is taken

PRESETS: Mapping[str, Preset] = presets()

Device = Mapping[str, Any]  # what a worker says of its device: rates, free_bytes, device_name
Pass = tuple[int, str, int]  # cell, mode, round


@dataclass(frozen=True)
class Cell:
    """One point of the grid; its modes are measured together, as one piece of work."""

    index: int
    model: str
    prompt_tokens: int
    new_tokens: int
    batch: int
    dtype: str


@dataclass(frozen=True)
class SweepSpec:
    """What a sweep measures: every combination of models, lengths, batches and dtypes, each in all modes.

    The prompts are `prompt_tokens` seeded random tokens. `budget_s`: seconds after which no further pass begins.
    """

    models: tuple[str, ...]
    modes: tuple[str, ...] = ("uncached", "cached")
    prompt_tokens: tuple[int, ...] = (64, 128, 256, 512)
    new_tokens: tuple[int, ...] = (64,)
    batches: tuple[int, ...] = (1,)
    dtypes: tuple[str, ...] = ("float32",)
    repeats: int = 3
    seed: int = 0
    budget_s: float | None = None
    preset: str = ""
    weights: str = "auto"
    device: str = "auto"
    attn: str = "sdpa"

    def __post_init__(self) -> None:
        for name in LISTS:
            _check_list(name, getattr(self, name))
        count = math.prod(len(getattr(self, name)) for name in LISTS if name != "modes")
        if count > MOST_CELLS:
            raise KvvizError(f"this grid has {count:,} cells; a sweep has at most {MOST_CELLS}: give fewer values")
        for name in self.modes:
            mode_named(str(name))
        if not isinstance(self.device, str) or not isinstance(self.preset, str):
            raise KvvizError("device and preset of a sweep are names")
        if self.preset and self.preset not in PRESETS:
            raise KvvizError(f"no preset {self.preset!r}; the presets are {', '.join(PRESETS)}")
        _check_budget(self.budget_s)
        for cell in cells(self):
            self.work(cell)  # a cell is a comparison: its counts and names are checked there

    def work(self, cell: Cell) -> ComparisonSpec:
        """The comparison that a cell is."""
        return ComparisonSpec(
            model=cell.model,
            modes=self.modes,
            weights=self.weights,
            prompt_tokens=cell.prompt_tokens,
            new_tokens=cell.new_tokens,
            batch=cell.batch,
            repeats=self.repeats,
            dtype=cell.dtype,
            device=self.device,
            attn=self.attn,
            sampling=Sampling(seed=self.seed),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; `from_dict` reads them back."""
        return {**asdict(self), **{name: list(getattr(self, name)) for name in LISTS}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "SweepSpec":
        """Read `to_dict`'s values. Raises KvvizError for a field that does not exist or does not fit."""
        if not isinstance(data, Mapping):
            raise KvvizError("a sweep is an object with the fields that to_dict writes")
        unknown = {str(name) for name in data} - {f.name for f in fields(cls)}
        if unknown:
            raise KvvizError(f"a sweep has no field {', '.join(sorted(unknown))[:200]}")
        if "models" not in data:
            raise KvvizError("a sweep names its models")
        return cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in data.items()})


LISTS = ("models", "modes", "prompt_tokens", "new_tokens", "batches", "dtypes")


def _check_list(name: str, values: Any) -> None:
    words = name.replace("_", " ")
    if not isinstance(values, tuple) or not values:
        raise KvvizError(f"{words} of a sweep is a list of at least one value, not {str(values)[:80]!r}")
    if len({repr(value) for value in values}) != len(values):
        raise KvvizError(f"{words} of a sweep names a value twice: {', '.join(map(str, values))[:200]}")


def _check_budget(budget: Any) -> None:
    if budget is None:
        return
    number = isinstance(budget, int | float) and not isinstance(budget, bool)
    if not number or not 0 < budget <= LONGEST_BUDGET:  # NaN fails the comparison
        raise KvvizError(f"the budget is {budget!r}; it is a number of seconds above 0, at most {LONGEST_BUDGET:,}")


def cells(spec: SweepSpec) -> tuple[Cell, ...]:
    """The grid, numbered: models outermost, new tokens innermost."""
    grid = product(spec.models, spec.dtypes, spec.batches, spec.prompt_tokens, spec.new_tokens)
    return tuple(
        Cell(index, model, prompt, new, batch, dtype) for index, (model, dtype, batch, prompt, new) in enumerate(grid)
    )


def same_work(spec: SweepSpec, other: SweepSpec) -> bool:
    """Whether the records of one count for the other: all but the number of repeats and the budget is equal."""
    return replace(spec, repeats=1, budget_s=None) == replace(other, repeats=1, budget_s=None)


def find_sources(spec: SweepSpec) -> dict[str, Source]:
    """Where each model comes from. Raises KvvizError for one that there is not."""
    return {model: find_source(model, spec.weights) for model in spec.models}


def check_sweep(spec: SweepSpec) -> None:
    """Refuse a sweep of which no model can be decoded in all of its modes, with the first one's sentence.

    Where only some can't, their cells will say so.
    """
    refusals = [_refusal(spec, source) for source in find_sources(spec).values()]
    if all(refusals):
        raise refusals[0]


def _refusal(spec: SweepSpec, source: Source) -> KvvizError | None:
    try:
        check_modes(spec.modes, source.config)
    except KvvizError as error:
        return error
    return None


# --- presets ---------------------------------------------------------------------------------------------------


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


# --- what it will take -------------------------------------------------------------------------------------------


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
    unknown = any(source.params is None or source.spec is None for source in sources.values())
    if unknown or not device or "rates" not in device:
        return None
    passes, proofs = {}, {}
    for cell in cells(spec):
        each = each_pass(sources[cell.model], spec.work(cell), device)
        passes |= {(cell.index, mode): seconds for mode, seconds in each.items()}
        operations = cell.new_tokens * len(sources[cell.model].spec.layers) * OPERATIONS_PER_LAYER * len(spec.modes)
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


def lasting(seconds: float) -> str:
    """A duration for people: 0.4 s, 25 s, 3 min, 2.5 h."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.{0 if seconds >= 10 * size else 1}f} {unit}"
    return f"{seconds:.{0 if seconds >= 10 else 1}f} s"


def cell_name(spec: SweepSpec, cell: Cell) -> str:
    """A cell in words, by what varies in its sweep: '512 + 64 tokens, batch 4'."""
    parts = [f"{cell.prompt_tokens:,} + {cell.new_tokens:,} tokens"]
    parts += [f"batch {cell.batch}"] if len(spec.batches) > 1 else []
    parts += [cell.dtype] if len(spec.dtypes) > 1 else []
    return ", ".join([cell.model, *parts] if len(spec.models) > 1 else parts)


# --- what has been measured --------------------------------------------------------------------------------------


def passes_in(records: Iterable[Mapping[str, Any]]) -> dict[tuple[int, str], dict[int, Mapping[str, Any]]]:
    """The passes that records hold: (cell, mode) -> round -> record."""
    found: dict[tuple[int, str], dict[int, Mapping[str, Any]]] = {}
    for record in records:
        if record["t"] == "cell_pass":
            found.setdefault((record["cell"], record["mode"]), {})[record["round"]] = record
    return found


def proofs_in(records: Iterable[Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """The proofs that records hold, by cell."""
    return {record["cell"]: record for record in records if record["t"] == "cell_proof"}


def rows(records: Iterable[Mapping[str, Any]], spec: SweepSpec) -> list[dict[str, Any]]:
    """A row for each cell and mode that has a pass, folded from the records so far; docs/json.md has the fields."""
    records = list(records)
    passes, proofs = passes_in(records), proofs_in(records)
    result = []
    for cell in cells(spec):
        mine = {mode: passes[cell.index, mode] for mode in spec.modes if (cell.index, mode) in passes}
        each = [_row(cell, mode, found, proofs.get(cell.index, {})) for mode, found in mine.items()]
        baseline = next((row["total_s"] for row in each if row["mode"] == "uncached"), None)
        result += [{**row, "speedup": baseline / row["total_s"] if baseline else None} for row in each]
    return result


def _row(cell: Cell, mode: str, found: Mapping[int, Mapping[str, Any]], proof: Mapping[str, Any]) -> dict[str, Any]:
    repeats = [record["s"] for record in found.values()]
    measured = figures(repeats, cell.batch)
    decode_s = measured["step_s"][1:]
    low, _, high = quartiles(decode_s) if decode_s else (None, None, None)
    work = {name: value for name, value in asdict(cell).items() if name != "index"}
    return {
        "cell": cell.index,
        **work,
        "mode": mode,
        **{name: measured[name] for name in HEADLINE},
        "itl_s_q1": low,
        "itl_s_q3": high,
        "total_mean_s": statistics.fmean(map(sum, repeats)),
        "repeats": len(repeats),
        "repeatable": all(record["same"] for record in found.values()),
        **_observed(mode, proof),
    }


HEADLINE = ("ttft_s", "itl_s", "itl_mean_s", "itl_p99_s", "tokens_per_s", "total_s")
OBSERVED = (
    "identical",
    "first_divergence",
    "max_abs_logit_diff",
    "cache_bytes",
    "allocated_bytes",
    "peak_bytes",
    "peak_kind",
)


def _observed(mode: str, proof: Mapping[str, Any]) -> dict[str, Any]:
    """What the untimed proof saw of a mode: identity, bytes of its cache and its peak, above the weights and with."""
    seen = proof.get("modes", {}).get(mode, {})
    peak, weights = seen.get("peak_bytes"), proof.get("weights_bytes")
    both = peak is not None and weights is not None
    return {
        **{name: seen.get(name) for name in OBSERVED},
        "weights_bytes": weights,
        "peak_with_weights_bytes": peak + weights if both else None,
    }


def document(records: Iterable[Mapping[str, Any]], spec: SweepSpec) -> dict[str, Any]:
    """The whole sweep as JSON values: where it was measured, what was asked for, the rows, the cells that failed."""
    records = list(records)
    started = next((record for record in reversed(records) if record["t"] == "sweep_started"), {})
    failed = {record["cell"]: record["message"] for record in records if record["t"] == "cell_failed"}
    return {
        "id": started.get("id"),
        "environment": started.get("environment"),
        "rates": started.get("rates"),
        "spec": spec.to_dict(),
        "reference": reference_mode(spec.modes),
        "rows": rows(records, spec),
        "failed": [
            {"cell": index, "name": cell_name(spec, cells(spec)[index]), "message": failed[index]}
            for index in sorted(failed)
        ],
    }
