"""Keeps a sweep's records in a JSON Lines journal, from which a killed sweep resumes; reads them back strictly."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from kvviz.base.checks import Absent, Unfit, check_of, text, whole
from kvviz.base.errors import KvvizError
from kvviz.experiments.comparison.records import (
    Count,
    EnvironmentFields,
    Hash,
    Name,
    Observed,
    RatesFields,
    Seconds,
    Size,
)
from kvviz.experiments.comparison.spec import LIMITS
from kvviz.experiments.kind import Record
from kvviz.experiments.sweep.spec import Cell, SweepSpec, cells, same_work

KINDS = ("sweep_started", "cell_proof", "cell_pass", "cell_failed")  # the records that a journal keeps
LARGEST = 500_000_000  # bytes
MOST_STARTS = 100  # of a journal from elsewhere


def write(path: Path, record: Record) -> None:
    """Append a record if the journal keeps its kind; first end a line that a kill cut short."""
    if record["t"] not in KINDS:
        return
    with path.open("ab+") as file:
        file.seek(0, 2)
        if file.tell():
            file.seek(-1, 2)
            torn = file.read(1) != b"\n"
            file.write(b"\n" if torn else b"")
        file.write(json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n")


def read(path: Path) -> list[dict[str, Any]]:
    """Read a journal's records and skip any line that is not valid JSON, such as one cut short by a kill.

    Raises KvvizError for a file that is not a journal.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise KvvizError(f"{path} is larger than {LARGEST:,} bytes, which no journal of a sweep is")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise KvvizError(f"{path} can't be read as a sweep's journal ({type(error).__name__})") from error
    records = _records(lines)
    if lines and (not records or records[0]["t"] != "sweep_started"):
        raise KvvizError(f"{path} is not the journal of a sweep: give another name, or that of one")
    return records


def _records(lines: Iterable[str]) -> list[dict[str, Any]]:
    return [record for record in map(_parsed, lines) if record is not None]


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and record.get("t") in KINDS else None


def spec_of(records: Sequence[Record]) -> SweepSpec | None:
    """The spec of a journal's latest start; None for an empty journal."""
    started = [record for record in records if record["t"] == "sweep_started"]
    return SweepSpec.from_dict(started[-1].get("spec")) if started else None


class ModeProof(Observed):
    """A mode in a cell's equivalence check: its cache's bytes after the last step, a digest of the tokens it chose."""

    cache_bytes: Count
    allocated_bytes: Count
    tokens: Hash


class CellProof(TypedDict):
    t: Literal["cell_proof"]
    cell: Count
    identical: bool
    delta: Size
    weights_bytes: Annotated[Count | None, Absent(None)]
    modes: dict[str, ModeProof]


class CellPass(TypedDict):
    t: Literal["cell_pass"]
    cell: Count
    mode: Name
    round: Count
    s: list[Seconds]
    same: bool
    clean: Annotated[bool | None, Absent(None)]


class CellFailed(TypedDict):
    t: Literal["cell_failed"]
    cell: Count
    message: Annotated[str, text(2000)]


_CHECKS = {"cell_proof": check_of(CellProof), "cell_pass": check_of(CellPass)}
_FAILED = check_of(CellFailed)


def usable(records: Iterable[Record], spec: SweepSpec) -> list[dict[str, Any]]:
    """Check an earlier start's records; return its equivalence checks and the passes of the cells that have one.

    Raises KvvizError for records that belong to other work or contradict the spec.
    """
    kept: list[dict[str, Any]] = []
    grid = cells(spec)
    for number, record in enumerate(records):
        kind = str(record.get("t")) if isinstance(record, Mapping) else ""
        try:
            if kind in _CHECKS:
                kept.append(_CHECKS[kind](record, "it"))
                _check_place(kept[-1], spec, grid)
            elif kind == "sweep_started" and not same_work(SweepSpec.from_dict(record.get("spec")), spec):
                raise Unfit("it is of a sweep over other work")
        except Unfit as error:
            raise KvvizError(f"record {number} of this sweep does not fit: {error}") from error
    proven = {record["cell"] for record in kept if record["t"] == "cell_proof"}
    return [record for record in kept if record["cell"] in proven]


def _check_place(record: Record, spec: SweepSpec, grid: Sequence[Cell]) -> None:
    """Raise Unfit for a record of a cell, mode, round or step that this sweep does not have."""
    if record["cell"] >= len(grid):
        raise Unfit("its cell is none of this sweep's")
    if record["t"] == "cell_proof":
        if set(record["modes"]) != set(spec.modes):
            raise Unfit("it has to hold an entry for each mode of the sweep")
        return
    if record["mode"] not in spec.modes or record["round"] >= LIMITS["repeats"]:
        raise Unfit("its mode or its round is none of this sweep's")
    steps = grid[record["cell"]].new_tokens
    if len(record["s"]) != steps:
        raise Unfit(f"s has to hold the seconds of {steps} steps")


# --- a journal from elsewhere -------------------------------------------------------------------------------------


def _spec(value: object, name: str) -> SweepSpec:
    try:
        return SweepSpec.from_dict(value)
    except (KvvizError, TypeError, ValueError) as error:
        raise Unfit(f"{name} is that of no sweep: {str(error)[:200]}") from error


class Plan(TypedDict):
    repeats: Annotated[int, whole(1, LIMITS["repeats"])]


class SweepStarted(TypedDict):
    t: Literal["sweep_started"]
    spec: Annotated[SweepSpec, _spec]
    environment: EnvironmentFields
    rates: RatesFields | None
    plan: Plan


_STARTED = check_of(SweepStarted)


@dataclass(frozen=True)
class Journal:
    """A sweep that was measured elsewhere: its records, checked; `done` of its `planned` passes are among them."""

    spec: SweepSpec
    records: Sequence[Record]
    done: int
    planned: int

    @property
    def id(self) -> str:
        return str(self.records[0]["id"])

    def renamed(self, sweep_id: str) -> "Journal":
        """Return a copy under another id."""
        return replace(self, records=[{**self.records[0], "id": sweep_id}, *self.records[1:]])


def is_journal(data: bytes) -> bool:
    """Whether a file begins as a journal does, whatever else it holds."""
    return re.match(rb'\s*\{\s*"t"\s*:\s*"sweep_started"', data) is not None


def foreign(data: bytes) -> Journal:
    """Check a journal from elsewhere, field by field. Raises KvvizError with one sentence."""
    try:
        records = _records(data.decode().splitlines())
        starts = [place for place, record in enumerate(records) if record["t"] == "sweep_started"]
        if not starts:
            raise Unfit("its first line was cut short")
        if len(starts) > MOST_STARTS:
            raise Unfit(f"it was started more than {MOST_STARTS} times")
        started = _STARTED(records[starts[-1]], "it")
        spec: SweepSpec = started["spec"]
        kept, grid = usable(records, spec), cells(spec)
        failed = [_FAILED(record, "it") for record in records[starts[-1] :] if record["t"] == "cell_failed"]
        if any(record["cell"] >= len(grid) for record in failed):
            raise Unfit("a failed cell is none of this sweep's")
    except UnicodeDecodeError as error:
        raise KvvizError("this journal of a sweep is no UTF-8 text") from error
    except Unfit as unfit:
        raise KvvizError(f"this journal of a sweep does not fit: {unfit}") from unfit
    passes = Counter(
        (cell, mode) for cell, mode, _ in {_place(record) for record in kept if record["t"] == "cell_pass"}
    )
    repeats, given_up = started["plan"]["repeats"], {record["cell"] for record in failed}
    keys = [(cell.index, mode) for cell in grid if cell.index not in given_up for mode in spec.modes]
    head = {**started, "id": "", "spec": spec.to_dict(), "cells": [asdict(cell) for cell in grid]}
    done = sum(min(passes[key], repeats) for key in keys)
    return Journal(spec, [head, *kept, *failed], done, repeats * len(keys))


def _place(record: Record) -> tuple[int, str, int]:
    return record["cell"], record["mode"], record["round"]
