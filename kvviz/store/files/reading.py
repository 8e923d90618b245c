"""Writes a comparison or a watched run as one JSON file, and reads it back strictly. Standard library only.

`{"kvviz": "comparison", "version": 1, "document": {...}, "records": [...]}`; a recording has no document. docs/json.md
describes both halves. The records are those of the live feed, so the live page shows a file like a live run. A file
that does not fit is refused with one sentence. Nothing in it is ever executed, and its texts are only shown as text.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args, get_type_hints

from kvviz.base.checks import LONGEST_LIST, Unfit, check_of, parse
from kvviz.base.errors import KvvizError
from kvviz.experiments.comparison.records import Document, Record
from kvviz.store.files import schema

VERSION = 1
LARGEST = 100_000_000  # bytes; a larger file is refused

# the check of each type of record, by the name in its field t
_RECORDS = {get_args(get_type_hints(kind)["t"])[0]: check_of(kind) for kind in get_args(Record)}
_WORK = ("model", "weights", "prompt", "new_tokens", "batch", "repeats", "warmup", "sampling")


@dataclass(frozen=True)
class Imported:
    """The content of a file: a comparison's document (None for a watched run) and its records (may be empty)."""

    document: Document | None
    records: Sequence[Record]

    @property
    def spec(self) -> dict[str, object]:
        """The work with the field names of `ComparisonSpec.to_dict`, as far as the file holds it."""
        spec: dict[str, object] = {}
        if self.records:
            started = schema.started_of(self.records)
            modes = [mode["name"] for mode in started["modes"]]
            known = {"model": started["model"]["id"], "weights": started["model"]["weights"], "modes": modes}
            spec = {**known, **started["spec"]}
        if self.document is not None:
            environment, prompt = self.document["environment"], self.document["prompt"]
            spec |= {name: value for name, value in self.document.items() if name in _WORK}
            spec |= {"modes": [run["mode"] for run in self.document["runs"]], "dtype": environment["dtype"]}
            spec |= {"device": environment["device"], "attn": environment["attn_implementation"]}
            spec["prompt_tokens"] = self.document["prompt_tokens"] if prompt is None else None
        return spec

    def renamed(self, comparison_id: str) -> "Imported":
        """Return a copy under another id."""
        document = self.document
        if document is not None:
            document = {**document, "id": comparison_id}
            document["runs"] = [{**run, "id": f"{comparison_id}-{run['mode']}"} for run in document["runs"]]
        if not self.records:
            return Imported(document, [])
        return Imported(document, [{**schema.started_of(self.records), "id": comparison_id}, *self.records[1:]])


def to_json(records: Sequence[Mapping[str, object]], document: Document | None = None) -> str:
    """Return a comparison, or without its document a recording, as JSON text.

    Of the feed's records it holds those that can be checked, without those of loading and without the document.
    """
    kept = [record for record in records if record["t"] in _RECORDS]
    shown = [{name: value for name, value in record.items() if name != "document"} for record in kept]
    whole = {"kvviz": "recording", "version": VERSION, "records": shown}
    if document is not None:
        whole |= {"kvviz": "comparison", "document": document}
    return json.dumps(whole, allow_nan=False)


def read(data: str | bytes) -> Imported:
    """Read a file of `to_json` or the JSON of `kvviz run`. Raises KvvizError with one sentence."""
    file = parse(data, LARGEST, "comparison")
    if not isinstance(file, dict):
        raise KvvizError("this file is no comparison of kvviz: it holds no JSON object")
    if "kvviz" not in file and "runs" in file:
        return Imported(_document(file, []), [])
    if file.get("kvviz") not in ("comparison", "recording"):
        raise KvvizError('this file is no comparison of kvviz: it lacks {"kvviz": "comparison", …} and has no runs')
    if file.get("version") != VERSION:
        raise KvvizError(f"this file has another version than {VERSION}, the one that this kvviz reads")
    if not isinstance(file.get("records"), list):
        raise KvvizError("this file does not fit: records has to be a list")
    recording = file["kvviz"] == "recording"
    records = checked(file["records"]) if file["records"] or recording else []
    return Imported(None if recording else _document(file.get("document"), records), records)


def _document(value: object, records: Sequence[Record]) -> Document:
    try:
        document = schema.document(value)
        if records:
            schema.check_agreement(document, records)
    except Unfit as unfit:
        raise KvvizError(f"this comparison does not fit: {unfit}") from unfit
    return document


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
    known = {mode["name"] for mode in schema.started_of(result)["modes"]}
    for place, record in enumerate(result):
        if not _modes_of(record) <= known:
            raise KvvizError(f"record {place} of this recording speaks of a mode that was not started")
    return result


def _kind(record: object) -> object:
    return record.get("t") if isinstance(record, dict) else None


def _checked(record: object) -> Record:
    kind = _kind(record)
    if not isinstance(kind, str) or kind not in _RECORDS:
        raise Unfit(f"its type is one of {', '.join(_RECORDS)}")
    return _RECORDS[kind](record, kind)


def _modes_of(record: Record) -> set[str]:
    if record["t"] == "first_look" or record["t"] == "proof":
        return set(record["modes"])
    if record["t"] == "predicted":
        return set(record["step_s"])
    if record["t"] == "figures":
        return {run["mode"] for run in record["runs"]}
    if record["t"] == "memory" or record["t"] == "pass" or record["t"] == "times":
        return {record["mode"]}
    return set()
