"""Writes a comparison as one JSON file, and reads it back with every field checked. Standard library only.

`{"kvviz": "comparison", "version": 1, "document": {...}, "records": [...]}`; docs/json.md describes both halves.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvviz.base.checks import Unfit, parse
from kvviz.base.errors import KvvizError
from kvviz.experiments.comparison.records import Document, Record
from kvviz.store.files import recording, schema
from kvviz.store.files.agreement import check_agreement, document_of

VERSION = 1
LARGEST = 100_000_000  # bytes; a larger file is refused


@dataclass(frozen=True)
class Imported:
    """The content of a file: a comparison's document (None for a watched run) and its records (may be empty)."""

    document: Document | None
    records: Sequence[Record]

    @property
    def spec(self) -> dict[str, object]:
        """The work with the field names of `ComparisonSpec.to_dict`, as far as the file holds it."""
        started = recording.started_of(self.records) if self.records else None
        known: Mapping[str, object] = started["spec"] if started else {}
        if self.document is not None:
            return {**known, **_work_of(self.document)}
        if started is None:
            return {}
        modes = [mode["name"] for mode in started["modes"]]
        return {"model": started["model"]["id"], "weights": started["model"]["weights"], "modes": modes, **known}

    def renamed(self, comparison_id: str) -> "Imported":
        """Return a copy under another id."""
        document = self.document
        if document is not None:
            document = {**document, "id": comparison_id}
            document["runs"] = [{**run, "id": f"{comparison_id}-{run['mode']}"} for run in document["runs"]]
        if not self.records:
            return Imported(document, [])
        return Imported(document, [{**recording.started_of(self.records), "id": comparison_id}, *self.records[1:]])


def _work_of(document: Document) -> dict[str, object]:
    environment = document["environment"]
    return {
        "model": document["model"],
        "weights": document["weights"],
        "prompt": document["prompt"],
        "new_tokens": document["new_tokens"],
        "batch": document["batch"],
        "repeats": document["repeats"],
        "warmup": document["warmup"],
        "sampling": document["sampling"],
        "modes": [run["mode"] for run in document["runs"]],
        "prompt_tokens": document["prompt_tokens"] if document["prompt"] is None else None,
        "dtype": environment["dtype"],
        "device": environment["device"],
        "attn": environment["attn_implementation"],
    }


def to_json(records: Sequence[Mapping[str, object]], document: Document) -> str:
    """Return the whole comparison as JSON text: its document, and the records that a recording holds."""
    whole = {"kvviz": "comparison", "version": VERSION, "document": document, "records": recording.shown(records)}
    return json.dumps(whole, allow_nan=False)


def read(data: str | bytes) -> Imported:
    """Read a file of `to_json`, the JSON of `kvviz run`, or a recording. Raises KvvizError with one sentence."""
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
    records = recording.checked(file["records"]) if file["records"] or file["kvviz"] == "recording" else []
    if file["kvviz"] == "recording":
        return Imported(document_of(records), records)
    return Imported(_document(file.get("document"), records), records)


def _document(value: object, records: Sequence[Record]) -> Document:
    try:
        document = schema.document(value)
        if records:
            check_agreement(document, records)
    except Unfit as unfit:
        raise KvvizError(f"this comparison does not fit: {unfit}") from unfit
    return document
