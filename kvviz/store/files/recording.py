"""Writes the records of a comparison or a watched run as one JSON file, and reads it strictly. Standard library only.

A recording is `{"kvviz": "recording", "version": 1, "records": [...]}`. Its records are those of the live feed, so the
live page shows it like a live run. Reading refuses an invalid file with one sentence. Nothing in a file is ever
executed, and its texts are only ever shown as text.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from kvviz.base.checks import LONGEST_LIST, Unfit, parse
from kvviz.base.errors import KvvizError
from kvviz.base.typed_checks import check_of
from kvviz.experiments.comparison import records as form
from kvviz.experiments.comparison.records import Record, Started

VERSION = 1
LARGEST = 20_000_000  # bytes; a larger file is refused

_CHECKS = {
    "started": check_of(form.Started),
    "predicted": check_of(form.Predicted),
    "proof": check_of(form.Proof),
    "memory": check_of(form.Memory),
    "pass": check_of(form.Pass),
    "times": check_of(form.Times),
    "figures": check_of(form.Figures),
    "done": check_of(form.Done),
}


def write(records: Sequence[Record], path: str | Path) -> Path:
    """Write a recording and return its path."""
    path = Path(path)
    path.write_text(dumps(records), encoding="utf-8")
    return path


def dumps(records: Sequence[Record]) -> str:
    """Return a recording as JSON text."""
    return json.dumps({"kvviz": "recording", "version": VERSION, "records": list(records)}, allow_nan=False)


def loads(data: str | bytes) -> list[Record]:
    """Read the records of a recording. Raises KvvizError with one sentence for any other file."""
    file = parse(data, LARGEST, "recording")
    if not isinstance(file, dict) or file.get("kvviz") != "recording" or not isinstance(file.get("records"), list):
        raise KvvizError('this file is no recording of kvviz: it lacks {"kvviz": "recording", "records": […]}')
    if file.get("version") != VERSION:
        raise KvvizError(f"this recording has another version than {VERSION}, the one that this kvviz reads")
    return checked(file["records"])


def checked(records: Sequence[object]) -> list[Record]:
    """Check every field of the records and drop unknown fields. Raises KvvizError with one sentence."""
    if not records or _kind(records[0]) != "started":
        raise KvvizError("this recording does not begin with a record of type 'started'")
    if len(records) > LONGEST_LIST:
        raise KvvizError(f"this recording has more than {LONGEST_LIST:,} records, which none has")
    result = []
    for place, record in enumerate(records):
        try:
            result.append(_checked(record))
        except Unfit as unfit:
            raise KvvizError(f"record {place} of this recording does not fit: {unfit}") from unfit
    _check_modes(result)
    return result


def started_of(records: Sequence[Record]) -> Started:
    """Return the first record; `checked` guarantees that its type is 'started'."""
    first = records[0]
    assert first["t"] == "started"
    return first


def shown(records: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """Select from the feed's records those that a recording keeps; drop the records of loading and the document."""
    kept = (record for record in records if record["t"] in _CHECKS)
    return [{name: value for name, value in record.items() if name != "document"} for record in kept]


def _kind(record: object) -> object:
    return record.get("t") if isinstance(record, dict) else None


def _checked(record: object) -> Record:
    kind = _kind(record)
    if not isinstance(kind, str) or kind not in _CHECKS:
        raise Unfit(f"its type is one of {', '.join(_CHECKS)}")
    return _CHECKS[kind](record, kind)


def _check_modes(records: Sequence[Record]) -> None:
    """Raise KvvizError for a record of a mode that the first record does not name."""
    known = {mode["name"] for mode in started_of(records)["modes"]}
    for place, record in enumerate(records):
        if not _modes_of(record) <= known:
            raise KvvizError(f"record {place} of this recording speaks of a mode that was not started")


def _modes_of(record: Record) -> set[str]:
    if record["t"] == "proof":
        return set(record["modes"])
    if record["t"] == "predicted":
        return set(record["step_s"])
    if record["t"] == "figures":
        return {run["mode"] for run in record["runs"]}
    if record["t"] == "memory" or record["t"] == "pass" or record["t"] == "times":
        return {record["mode"]}
    return set()
