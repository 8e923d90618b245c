"""A finished comparison as a file, and the strict way back: JSON, CSV, Parquet, one self-contained HTML page.

`document` is what docs/json.md calls the JSON of a comparison; `records` are those of the live feed, in their order,
and may be empty: then only what the document holds is written.
"""

from kvviz.export.exchange import FORMATS, keep, kept, take_in, written
from kvviz.export.reading import Imported, document_of, read, to_json
from kvviz.export.tables import columns, to_csv, to_parquet
from kvviz.export.webpage import to_html

__all__ = [
    "FORMATS",
    "Imported",
    "columns",
    "document_of",
    "keep",
    "kept",
    "read",
    "take_in",
    "to_csv",
    "to_html",
    "to_json",
    "to_parquet",
    "written",
]
