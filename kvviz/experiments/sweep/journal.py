"""Writes a sweep's records to a JSON Lines journal as they come, and reads them back strictly. Standard library only.

A killed sweep resumes from its journal; reading drops a last line that the kill cut short.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.base.records import is_whole
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


def usable(records: Iterable[Record], spec: SweepSpec) -> list[dict[str, Any]]:
    """Check an earlier start's records; return its equivalence checks and the passes of the cells that have one.

    Raises KvvizError for records that belong to other work or contradict the spec.
    """
    kept: list[dict[str, Any]] = []
    for number, record in enumerate(records):
        kind = str(record.get("t")) if isinstance(record, Mapping) else ""
        check, clean = _READ.get(kind, (None, None))
        if check is None:
            continue
        problem = check(record, spec)
        if problem:
            raise KvvizError(f"record {number} of this sweep does not fit: {problem}")
        kept += [clean(record)] if clean else []
    proven = {record["cell"] for record in kept if record["t"] == "cell_proof"}
    return [record for record in kept if record["cell"] in proven]


def _same(record: Record, spec: SweepSpec) -> str:
    other = SweepSpec.from_dict(record.get("spec"))
    return "" if same_work(other, spec) else "it is of a sweep over other work"


def _pass(record: Record, spec: SweepSpec) -> str:
    problem = _where(record, spec)
    if problem:
        return problem
    if record.get("mode") not in spec.modes or not _whole(record.get("round"), LIMITS["repeats"] - 1):
        return "its mode or its round is none of this sweep's"
    seconds, steps = record.get("s"), cells(spec)[record["cell"]].new_tokens
    if not isinstance(seconds, list) or len(seconds) != steps or not all(map(_duration, seconds)):
        return f"it holds the seconds of {steps} steps"
    return "" if isinstance(record.get("same"), bool) else "same is true or false"


def _clean_pass(record: Record) -> dict[str, Any]:
    return {name: record[name] for name in ("t", "cell", "mode", "round", "s", "same")}


def _proof(record: Record, spec: SweepSpec) -> str:
    modes = record.get("modes")
    problem = _where(record, spec)
    if problem or not isinstance(modes, Mapping) or set(modes) != set(spec.modes):
        return problem or "it has an entry for each mode of the sweep"
    if not (record.get("weights_bytes") is None or _whole(record["weights_bytes"])):
        return "weights_bytes is a whole number"
    return next((f"{name} of {mode} is not what a proof writes" for mode in modes for name in _wrong(modes[mode])), "")


def _clean_proof(record: Record) -> dict[str, Any]:
    """Keep an equivalence check's validated fields only; recompute the totals from them."""
    modes = {mode: {name: entry[name] for name in _PROOF} for mode, entry in record["modes"].items()}
    return {
        "t": "cell_proof",
        "cell": record["cell"],
        "identical": all(entry["identical"] for entry in modes.values()),
        "delta": max(entry["max_abs_logit_diff"] or 0.0 for entry in modes.values()),
        "weights_bytes": record.get("weights_bytes"),
        "modes": modes,
    }


_PROOF = {
    "identical": lambda value: isinstance(value, bool),
    "first_divergence": lambda value: value is None or _whole(value),
    "divergence_margin": lambda value: value is None or _duration(value),
    "max_abs_logit_diff": lambda value: value is None or _duration(value),
    "cache_bytes": lambda value: _whole(value),
    "allocated_bytes": lambda value: _whole(value),
    "peak_bytes": lambda value: value is None or _whole(value),
    "peak_kind": lambda value: value in (None, "cuda_allocated", "profiler"),
    "tokens": lambda value: isinstance(value, str) and len(value) <= 64,
}


def _wrong(entry: object) -> list[str]:
    if not isinstance(entry, Mapping):
        return ["the entry"]
    return [name for name, fits in _PROOF.items() if not fits(entry.get(name, object))]


def _where(record: Record, spec: SweepSpec) -> str:
    return "" if _whole(record.get("cell"), len(cells(spec)) - 1) else "its cell is none of this sweep's"


def _whole(value: object, most: int = 2**53) -> bool:
    return is_whole(value, 0, most)


def _duration(value: object) -> bool:
    """Whether the value is a finite number of at least 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


_READ = {
    "sweep_started": (_same, None),
    "cell_proof": (_proof, _clean_proof),
    "cell_pass": (_pass, _clean_pass),
}
