"""JSON Schemas of the documents and files, made from the types that check them. Standard library only."""

from dataclasses import dataclass
from typing import Any, get_args

from kvviz.base.json_schema import schema_of
from kvviz.experiments.comparison.records import Document, Record
from kvviz.experiments.sweep.journal import CellFailed, CellPass, CellProof, SweepStarted
from kvviz.store.files.reading import VERSION

DIALECT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True)
class Described:
    """One schema: what it describes, and the types that a value may have."""

    about: str
    forms: tuple[Any, ...]


SCHEMAS = {
    "comparison": Described("the document of `kvviz run`, `compare()` and of a file's `document`", (Document,)),
    "record": Described(
        "one record of a comparison: of the feed, of a file's `records`, of a recording", get_args(Record)
    ),
    "sweep-record": Described(
        "one line of the journal that `kvviz sweep --resume` keeps, as far as reading it back needs it",
        (SweepStarted, CellProof, CellPass, CellFailed),
    ),
    "file": Described("a file of `kvviz export`, `compare(...).save` or `trace.save`", ()),
}


def schema(name: str) -> dict[str, Any]:
    """The schema of this name, with everything that it refers to inside. Raises KeyError for a name without one."""
    row = SCHEMAS[name]
    defs: dict[str, Any] = {}
    body = _file(defs) if name == "file" else _one_of(row.forms, defs)
    return {"$schema": DIALECT, "title": name, "description": row.about, **body, "$defs": dict(sorted(defs.items()))}


def _one_of(forms: tuple[Any, ...], defs: dict[str, Any]) -> dict[str, Any]:
    inner = [schema_of(form, defs) for form in forms]
    return inner[0] if len(inner) == 1 else {"oneOf": inner}


def _file(defs: dict[str, Any]) -> dict[str, Any]:
    """A comparison with its records, or a recording without a document."""
    records = {"type": "array", "items": _one_of(get_args(Record), defs)}
    head = {"version": {"const": VERSION}, "records": records}
    return {
        "oneOf": [
            {
                "type": "object",
                "properties": {"kvviz": {"const": "comparison"}, **head, "document": schema_of(Document, defs)},
                "required": ["kvviz", "version", "document", "records"],
            },
            {
                "type": "object",
                "properties": {"kvviz": {"const": "recording"}, **head},
                "required": ["kvviz", "version", "records"],
            },
        ]
    }
