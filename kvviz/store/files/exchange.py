"""Moves comparisons between files and the store of runs."""

import json
from typing import TYPE_CHECKING, cast

from kvviz.base.errors import KvvizError
from kvviz.base.records import new_id
from kvviz.experiments.comparison.records import Document
from kvviz.store.files.reading import Imported, read, to_json
from kvviz.store.files.schema import started_of
from kvviz.store.files.tables import to_csv, to_parquet
from kvviz.store.files.webpage import to_html

if TYPE_CHECKING:
    from kvviz.store.db.store import Store

FORMATS = ("json", "csv", "parquet", "html")


def written(comparison: Imported, form: str) -> bytes:
    """Return a comparison as a file's bytes. Raises KvvizError for an unknown format or a missing document."""
    if form not in FORMATS:
        raise KvvizError(f"a comparison is written as one of {', '.join(FORMATS)}")
    document, records = comparison.document, comparison.records
    if document is None:
        raise KvvizError("this comparison was not finished, or only watched: it has no figures to write")
    if form == "parquet":
        return to_parquet(document, records)
    if form == "json":
        return to_json(records, document).encode()
    return {"csv": to_csv, "html": to_html}[form](document, records).encode("utf-8", "replace")


def kept(store: "Store", comparison_id: str) -> Imported:
    """Return a stored comparison. Raises KvvizError if the store does not know it."""
    records, document = store.records(comparison_id), store.document(comparison_id)
    if document is None and not records:
        raise KvvizError(f"there is no comparison {comparison_id[:80]!r} in the store")
    return Imported(cast(Document | None, document), [json.loads(record) for record in records])


def take_in(store: "Store", data: str | bytes, *, title: str = "", made_by: str = "") -> str:
    """Check a file, store its comparison under a new id and return the id. Raises KvvizError with one sentence."""
    return keep(store, read(data).renamed(new_id()), origin="import", title=title, made_by=made_by)


def keep(store: "Store", comparison: Imported, *, origin: str, title: str = "", made_by: str = "") -> str:
    """Store a finished comparison under its own id; `made_by` is the mark of the browser that owns it."""
    document, records = comparison.document, comparison.records
    work_id = document["id"] if document is not None else started_of(records).get("id", new_id())
    store.begin(work_id, comparison.spec, origin=origin, title=title, made_by=made_by)
    store.append(work_id, [json.dumps(record) for record in records])
    store.finish(work_id, "done", document)
    return work_id
