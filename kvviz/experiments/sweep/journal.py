"""Keeps a sweep's records in a JSON Lines journal, from which a killed sweep resumes; reads them back strictly."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from kvviz.base.checks import Absent, Unfit, check_of
from kvviz.base.errors import KvvizError
from kvviz.experiments.comparison.records import Count, Hash, Name, Observed, Seconds, Size
from kvviz.experiments.comparison.spec import LIMITS
from kvviz.experiments.kind import Record
from kvviz.experiments.sweep.spec import SweepSpec, cells, same_work

KINDS = ("sweep_started", "cell_proof", "cell_pass", "cell_failed")  # the records that a journal keeps
LARGEST = 500_000_000  # bytes


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
    records = [record for record in map(_parsed, lines) if record is not None]
    if lines and (not records or records[0]["t"] != "sweep_started"):
        raise KvvizError(f"{path} is not the journal of a sweep: give another name, or that of one")
    return records


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


_CHECKS = {"cell_proof": check_of(CellProof), "cell_pass": check_of(CellPass)}


def usable(records: Iterable[Record], spec: SweepSpec) -> list[dict[str, Any]]:
    """Check an earlier start's records; return its equivalence checks and the passes of the cells that have one.

    Raises KvvizError for records that belong to other work or contradict the spec.
    """
    kept: list[dict[str, Any]] = []
    for number, record in enumerate(records):
        kind = str(record.get("t")) if isinstance(record, Mapping) else ""
        try:
            if kind in _CHECKS:
                kept.append(_CHECKS[kind](record, "it"))
                _check_place(kept[-1], spec)
            elif kind == "sweep_started" and not same_work(SweepSpec.from_dict(record.get("spec")), spec):
                raise Unfit("it is of a sweep over other work")
        except Unfit as error:
            raise KvvizError(f"record {number} of this sweep does not fit: {error}") from error
    proven = {record["cell"] for record in kept if record["t"] == "cell_proof"}
    return [record for record in kept if record["cell"] in proven]


def _check_place(record: Record, spec: SweepSpec) -> None:
    """Raise Unfit for a record of a cell, mode, round or step that this sweep does not have."""
    if record["cell"] >= len(cells(spec)):
        raise Unfit("its cell is none of this sweep's")
    if record["t"] == "cell_proof":
        if set(record["modes"]) != set(spec.modes):
            raise Unfit("it has to hold an entry for each mode of the sweep")
        return
    if record["mode"] not in spec.modes or record["round"] >= LIMITS["repeats"]:
        raise Unfit("its mode or its round is none of this sweep's")
    steps = cells(spec)[record["cell"]].new_tokens
    if len(record["s"]) != steps:
        raise Unfit(f"s has to hold the seconds of {steps} steps")
