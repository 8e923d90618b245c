"""Moves comparisons between files and the store of runs; takes in the journals of sweeps."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias, cast

from kvviz.base.errors import KvvizError
from kvviz.base.records import new_id
from kvviz.experiments.comparison.records import Document
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.sweep.journal import Journal, foreign, is_journal
from kvviz.experiments.sweep.rows import document as document_of_sweep
from kvviz.experiments.sweep.spec import SweepSpec
from kvviz.experiments.sweep.spec import title as title_of_sweep
from kvviz.store.db.stored import IMPORTED, LONGEST_TITLE
from kvviz.store.files.reading import Imported, read, to_json
from kvviz.store.files.schema import started_of
from kvviz.store.files.tables import to_csv, to_parquet
from kvviz.store.files.webpage import to_html

if TYPE_CHECKING:
    from kvviz.store.db.store import Store

File: TypeAlias = Imported | Journal
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


def read_any(data: bytes) -> File:
    """Check a file of either kind. Raises KvvizError with one sentence."""
    return foreign(data) if is_journal(data) else read(data)


def take_in(store: "Store", data: bytes, *, title: str = "", made_by: str = "") -> str:
    """Check a file, store what it holds under a new id and return the id. Raises KvvizError with one sentence."""
    return keep(store, read_any(data).renamed(new_id()), origin=IMPORTED, title=title, made_by=made_by)


def keep(store: "Store", found: File, *, origin: str, title: str = "", made_by: str = "") -> str:
    """Store a finished comparison or sweep under its own id; `made_by` is the mark of the browser that owns it."""
    document: Mapping[str, object] | None
    if isinstance(found, Journal):
        work_id, spec, kind = found.id, found.spec.to_dict(), SweepSpec.kind
        document = document_of_sweep(found.records, found.spec)
        title = f"{title_of_sweep(found.spec)}{title and f', {title}'}"
        state = "done" if found.done == found.planned else "stopped"
    else:
        document, spec, kind, state = found.document, found.spec, ComparisonSpec.kind, "done"
        work_id = found.document["id"] if found.document else started_of(found.records).get("id", new_id())
    store.begin(work_id, spec, kind=kind, origin=origin, title=title[:LONGEST_TITLE], made_by=made_by)
    store.append(work_id, [json.dumps(record) for record in found.records])
    store.finish(work_id, state, document)
    return work_id
