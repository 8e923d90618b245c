"""Plans a sweep: the spec of a preset, what fits a time budget, and the order of the visits. Standard library only."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.base.words import human, lasting
from kvviz.decoding.requirements import needs, usual_dtype
from kvviz.experiments.kind import Device, Estimate, Record
from kvviz.experiments.sweep.pace import Pace, guess, missing
from kvviz.experiments.sweep.spec import PRESETS, Cell, Pass, SweepSpec, cell_name, cells, find_sources
from kvviz.memory.formula import DTYPE_BYTES
from kvviz.models.catalog.rows import Preset, models
from kvviz.models.sources import Source

PATIENCE = 1800  # seconds that a preset takes at most, unless another budget is given
FEWEST = 2  # points of a preset that have to fit into that, or it falls back to the next smaller model


def preset_spec(preset_id: str, on: Device | None = None, **changes: Any) -> SweepSpec:
    """Turn a preset into a spec; `changes` that are not None replace its fields.

    The model is the preset's first one in the catalog that the device `on` can hold and of which it can measure FEWEST
    points within PATIENCE; that is then the budget. If none can, it is the last; without `on`, it is the first. Raises
    KvvizError for a preset that needs a GPU, if `on` is none or is too small for each of its models.
    """
    if preset_id not in PRESETS:
        raise KvvizError(f"no preset {preset_id!r}; the presets are {', '.join(PRESETS)}")
    row = PRESETS[preset_id]
    grid = ("modes", "prompt_tokens", "new_tokens", "batches", "repeats", "prompt")
    given = {name: value for name, value in changes.items() if value is not None}
    settings = {**{name: getattr(row, name) for name in grid}, **given, "preset": row.id}
    if "models" in given:
        return _patient(SweepSpec(**{"dtypes": _dtypes(row, given["models"][0], on), **settings}), on)
    specs = [
        _patient(SweepSpec(**{"models": (model,), "dtypes": _dtypes(row, model, on), **settings}), on)
        for model in row.models
        if model in models()
    ]
    chosen = next((spec for spec in specs if on is None or _runs_on(spec, on)), None)
    if on is not None and row.gpu:
        _check_gpu(row.title, chosen, specs[-1], on)
    return chosen or specs[-1]


def _dtypes(row: Preset, model: str, on: Device | None) -> tuple[str, ...]:
    """The preset's own precision if it is about a GPU, else the usual one for this model on this device."""
    known = models().get(model)
    usual = usual_dtype(known.params if known else None, (on or {}).get("capability"))
    return row.dtypes if row.gpu or usual == "float32" else (usual,)


def _patient(spec: SweepSpec, on: Device | None) -> SweepSpec:
    """The spec within a budget of PATIENCE, if it has none and would take longer."""
    longer = spec.budget_s is None and on is not None and (estimate(spec, on) or 0.0) > PATIENCE
    return replace(spec, budget_s=float(PATIENCE)) if longer else spec


def _check_gpu(title: str, chosen: SweepSpec | None, smallest: SweepSpec, on: Device) -> None:
    """Raise KvvizError unless the device is a GPU on which one of the preset's models runs."""
    name = on.get("device_name", "this machine")
    if on.get("device", "cpu") == "cpu":
        raise KvvizError(f"“{title}” shows what only a GPU does, and kvviz computes on {name} here")
    if chosen is None:
        least = max(needs(source, smallest.largest).total for source in find_sources(smallest).values())
        raise KvvizError(f"“{title}” needs {human(least)}, and {name} has {human(_free(on))} free")


def _free(device: Device) -> float:
    return device.get("free_bytes", device.get("total_bytes", math.inf))


def _runs_on(spec: SweepSpec, device: Device) -> bool:
    """Whether every cell fits the device's memory, and FEWEST of them, or all, the budget."""
    sources = find_sources(spec)
    free = _free(device)
    fits = all(needs(sources[cell.model], spec.work(cell)).total <= free for cell in cells(spec))
    cut = within(spec, spec.budget_s, device)
    enough = len(cells(spec)) - len(cut.left_out) >= min(FEWEST, len(cells(spec)))
    return fits and enough and (cut.seconds or 0.0) <= (spec.budget_s or math.inf)


def stands_in(spec: SweepSpec, on: Device | None) -> str:
    """Say that a model stands in for the one that a preset names first, as this device can't do that; '' otherwise."""
    preset = PRESETS.get(spec.preset)
    if preset is None or on is None or preset.models[0] in spec.models:
        return ""
    named = preset_spec(preset.id, on, models=preset.models[:1])
    if _runs_on(named, on):
        return ""
    return (
        f"The experiment names {models()[preset.models[0]].title}. This device does not hold it, or measures fewer "
        f"than {FEWEST} of its points in {lasting(PATIENCE)}, so {', '.join(spec.models)} stands in."
    )


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
    pace, done = Pace(found), frozenset(done)
    proven = {cell for cell, _, _ in done}

    def takes(kept: Collection[int], repeats: int) -> float:
        return pace.left(missing(spec, kept, repeats, done), set(kept) - proven) or 0.0

    budget = math.inf if budget_s is None else budget_s
    kept: Collection[int] = range(len(cells(spec)))
    repeats = next((count for count in range(spec.repeats, 0, -1) if takes(kept, count) <= budget), 1)
    if takes(kept, repeats) > budget:
        kept = cheapest = sorted(kept, key=lambda cell: (takes([cell], 1), cell))
        while len(cheapest) > 1 and takes(cheapest, 1) > budget:
            cheapest.pop()
    left_out = tuple(cell.index for cell in cells(spec) if cell.index not in kept)
    seconds = takes(kept, repeats)
    parts = [f"about {lasting(seconds)} by estimate"]
    if repeats < spec.repeats:
        parts.append(f"{repeats} of {spec.repeats} repeats")
    if left_out:
        names = ", ".join(cell_name(spec, cells(spec)[index]) for index in left_out[:4])
        parts.append(f"without {names}{f' and {len(left_out) - 4} more' if len(left_out) > 4 else ''}")
    if seconds > budget:
        parts.append(f"which is still more than the {lasting(budget)} given")
    return Cut(repeats, left_out, seconds, ", ".join(parts))


def estimate(spec: SweepSpec, device: Device | None) -> float | None:
    """Estimated seconds of the whole sweep, with each cell's equivalence check and passes; None if unknown."""
    return within(spec, None, device).seconds


def estimated(spec: SweepSpec, device: Device, earlier: Sequence[Record] = ()) -> Estimate | None:
    """Estimate for the queue: the sweep cut to its own budget, without the passes of an interrupted run."""
    done = {(record["cell"], record["mode"], record["round"]) for record in earlier if record["t"] == "cell_pass"}
    seconds = within(spec, spec.budget_s, device, done).seconds
    return None if seconds is None else Estimate(seconds)


def groups(spec: SweepSpec, sources: Mapping[str, Source], free: int) -> list[list[Cell]]:
    """Group the cells to interleave: those whose models fit in `free` bytes together; one of unknown size is alone."""
    by_model: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells(spec):
        by_model.setdefault((cell.model, cell.dtype), []).append(cell)
    found: list[list[Cell]] = []
    weights, most = 0, 0  # bytes of the last group: its weights, and the most that a cell needs beside them
    for (model, dtype), mine in by_model.items():
        source = sources[model]
        if source.params is None or source.spec is None:
            own, rest = free + 1, 0
        else:
            own = source.params * DTYPE_BYTES[dtype]
            rest = max(needs(source, spec.work(cell)).total for cell in mine) - own
        if found and weights + own + max(most, rest) <= free:
            found[-1] += mine
            weights, most = weights + own, max(most, rest)
        else:
            found.append(mine)
            weights, most = own, rest
    return found


def visits(group: Sequence[Cell], rounds: int) -> Iterator[tuple[int, Cell]]:
    """Yield (round, cell), reversing the order every round (A B C, C B A) so that drift affects all cells alike."""
    for number in range(rounds):
        yield from ((number, cell) for cell in (group if number % 2 == 0 else reversed(group)))
