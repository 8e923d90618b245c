"""Moves comparisons between files and the store of runs (kvviz.store.db.Store, or any object with its methods)."""

import json
from collections.abc import Mapping, Sequence
from typing import Protocol, cast

from kvviz.base.errors import KvvizError
from kvviz.base.records import new_id
from kvviz.experiments.comparison.records import Document
from kvviz.store.files.reading import Imported, read, to_json
from kvviz.store.files.recording import started_of
from kvviz.store.files.tables import to_csv, to_parquet
from kvviz.store.files.webpage import to_html


class Keeps(Protocol):
    """The methods that a store needs for import and export."""

    def begin(
        self, work_id: str, spec: Mapping[str, object], *, kind: str, origin: str, title: str, made_by: str
    ) -> None: ...

    def append(self, work_id: str, records: Sequence[str]) -> None: ...

    def finish(self, work_id: str, state: str, document: Mapping[str, object] | None) -> None: ...

    def document(self, work_id: str) -> dict[str, object] | None: ...

    def records(self, work_id: str) -> list[str]: ...


FORMATS = ("json", "csv", "parquet", "html")


def written(comparison: Imported, form: str) -> bytes:
    """Return a comparison as a file's bytes. Raises KvvizError for an unknown format or a missing document."""
    if form not in FORMATS:
        raise KvvizError(f"a comparison is written as one of {', '.join(FORMATS)}")
    if comparison.document is None:
        raise KvvizError("this comparison was not finished, or only watched: it has no figures to write")
    if form == "parquet":
        return to_parquet(comparison.document, comparison.records)
    if form == "json":
        return to_json(comparison.records, comparison.document).encode()
    return {"csv": to_csv, "html": to_html}[form](comparison.document, comparison.records).encode("utf-8", "replace")


def kept(store: Keeps, comparison_id: str) -> Imported:
    """Return a stored comparison. Raises KvvizError if the store does not know it."""
    records, document = store.records(comparison_id), store.document(comparison_id)
    if document is None and not records:
        raise KvvizError(f"there is no comparison {comparison_id[:80]!r} in the store")
    return Imported(cast(Document | None, document), [json.loads(record) for record in records])


def take_in(store: Keeps, data: str | bytes, *, title: str = "", made_by: str = "") -> str:
    """Check a file, store its comparison under a new id and return the id. Raises KvvizError with one sentence."""
    found = read(data)
    return keep(store, found.renamed(new_id()), origin="import", title=title, made_by=made_by)


def keep(store: Keeps, comparison: Imported, *, origin: str, title: str = "", made_by: str = "") -> str:
    """Store a finished comparison under its own id; `made_by` is the mark of the browser that owns it."""
    document, records = comparison.document, comparison.records
    work_id = document["id"] if document is not None else started_of(records).get("id", new_id())
    store.begin(work_id, comparison.spec, kind="comparison", origin=origin, title=title, made_by=made_by)
    store.append(work_id, [json.dumps(record) for record in records])
    store.finish(work_id, "done", document)
    return work_id
