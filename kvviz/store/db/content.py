"""Packs records and columns of numbers into blobs; splits a document into one row per run and rebuilds it.

Records are joined by the character RS, which no JSON text can hold unescaped (RFC 7464). Packed columns are zlib over
one line of JSON, `{name: [type, shape]}`, and the raw little-endian numbers of each name in that order.
"""

import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import RowMapping

from kvviz.device.disturbance import undisturbed
from kvviz.store.db.stored import Run, Stored, runs_of

SEPARATOR = "\x1e"
QUICK = 1  # zlib level for a chunk written while a measurement runs
TIGHT = 6
TYPES = {int: "q", float: "d"}  # int64, float64


def join(records: Sequence[str], level: int = TIGHT) -> bytes:
    """Pack JSON texts into one blob."""
    return zlib.compress(SEPARATOR.join(records).encode("utf-8", "surrogatepass"), level)


def split(blob: bytes) -> list[str]:
    """Unpack the blob that `join` made."""
    return zlib.decompress(blob).decode("utf-8", "surrogatepass").split(SEPARATOR)


def squeeze(value: object) -> bytes:
    """Pack a JSON value into a blob."""
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode())


def expand(blob: bytes) -> Any:
    """Unpack the blob that `squeeze` made."""
    return json.loads(zlib.decompress(blob))


def take_columns(fields: Mapping[str, object]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split an object into the part that stays JSON and its columns; in the JSON part each column is None."""
    columns = {name: value for name, value in fields.items() if _as_array(value) is not None}
    return {name: None if name in columns else value for name, value in fields.items()}, columns


def pack(columns: Mapping[str, object]) -> bytes:
    """Pack lists of numbers, or rectangular lists of such lists, into one blob. Raises ValueError for anything else."""
    head, body = {}, b""
    for name, values in columns.items():
        found = _as_array(values)
        if found is None:
            raise ValueError(f"{name} is no column of numbers")
        head[name] = ["d" if found.dtype.kind == "f" else "q", found.shape]
        body += found.tobytes()
    return zlib.compress(json.dumps(head).encode() + b"\n" + body)


def unpack(blob: bytes) -> dict[str, list[Any]]:
    """Unpack the blob that `pack` made."""
    head, _, body = zlib.decompress(blob).partition(b"\n")
    columns, start = {}, 0
    for name, (kind, shape) in json.loads(head).items():
        numbers = np.frombuffer(body, f"<{kind}", math.prod(shape), start)
        columns[name] = numbers.reshape(shape).tolist()
        start += numbers.nbytes
    return columns


def _as_array(values: object) -> np.ndarray | None:
    """Return a column of numbers of one type as an array; return None for any other value."""
    if not isinstance(values, list | tuple):
        return None
    nested = all(isinstance(row, list | tuple) for row in values)
    kinds = {type(number) for row in values for number in row} if nested else set(map(type, values))
    if len(kinds) != 1 or not kinds <= set(TYPES):
        return None
    try:
        return np.array(values, f"<{TYPES[kinds.pop()]}")
    except (ValueError, OverflowError):  # rows of different lengths; numbers beyond 64 bits
        return None


def records_of(kind: str, texts: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the parsed records of one type; skip texts that are not records."""
    for text in texts:
        if f'"{kind}"' in text:
            try:
                record = json.loads(text)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict) and record.get("t") == kind:
                yield record


def take_apart(
    work_id: str, document: Mapping[str, object], texts: Sequence[str]
) -> tuple[bytes, list[dict[str, object]]]:
    """Split a document into a blob without its runs and one table row per run.

    The document and its runs get this store's ids, even if they were imported under others.
    """
    found = runs_of(document)
    seconds = repeats_of(texts)
    rest = {**document, "id": work_id, **({"runs": []} if found else {})}
    return squeeze(rest), [_row(work_id, number, run, seconds) for number, run in enumerate(found)]


def put_together(rest: bytes, rows: Sequence[RowMapping]) -> dict[str, Any]:
    """Rebuild the document that `take_apart` split."""
    document = expand(rest)
    return {**document, "runs": [entry_of(row) for row in rows]} if rows else document


def run_of(row: RowMapping, comparison: Stored, spec: dict[str, Any]) -> Run:
    """Read one mode's run of a comparison, made for this spec, with all its steps."""
    repeats = unpack(row["repeats"])["seconds"] if row["repeats"] else ()
    return Run(row["id"], comparison, row["mode"], tuple(map(tuple, repeats)), entry_of(row), spec)


def entry_of(row: RowMapping) -> dict[str, Any]:
    """Rebuild a run's entry in the document."""
    return {**expand(row["figures"]), **unpack(row["columns"])}


def repeats_of(texts: Sequence[str]) -> dict[str, list[list[float]]]:
    """Return the seconds of every step by mode and timed pass, in the order of the passes, without warm-ups.

    Disturbed passes are left out for a mode that has undisturbed ones, as in its figures.
    """
    passes: dict[tuple[str, int], list[float]] = {}
    for record in records_of("times", texts):
        mode, repeat, start, seconds = (record.get(name) for name in ("mode", "repeat", "from", "s"))
        if isinstance(mode, str) and type(repeat) is int and repeat >= 0 and isinstance(seconds, list):
            so_far = passes.setdefault((mode, repeat), [])
            if start == len(so_far):
                so_far.extend(seconds)
    clean = {(found.get("mode"), found.get("repeat")): found.get("clean") for found in records_of("clocked", texts)}
    result: dict[str, list[list[float]]] = {}
    for mode in dict.fromkeys(mode for mode, _ in sorted(passes)):
        keys = [key for key in sorted(passes) if key[0] == mode]
        result[mode] = undisturbed([passes[key] for key in keys], map(clean.get, keys))
    return result


def _row(
    work_id: str, position: int, run: Mapping[str, object], seconds: Mapping[str, Sequence[Sequence[float]]]
) -> dict[str, object]:
    mode = str(run["mode"])
    run_id = f"{work_id}-{mode}"
    figures, columns = take_columns({**run, "id": run_id})
    return {
        "id": run_id,
        "work_id": work_id,
        "mode": mode,
        "position": position,
        "figures": squeeze(figures),
        "columns": pack(columns),
        "repeats": _whole_passes(seconds.get(mode, []), run.get("step_s")),
    }


def _whole_passes(passes: Sequence[Sequence[float]], steps: object) -> bytes | None:
    """Pack the passes that have as many steps as the document; return None if there are none."""
    wanted = len(steps) if isinstance(steps, list) else -1
    whole = [seconds for seconds in passes if len(seconds) == wanted]
    try:
        return pack({"seconds": [[float(second) for second in seconds] for seconds in whole]}) if whole else None
    except (TypeError, ValueError):
        return None
