"""Writes a comparison as a table with a row per mode, repeat and step, in seconds and bytes, as CSV or Parquet.

Every row has the median and quartiles over the repeats; `clean` says whether nothing disturbed the row's pass. Without
the records of the timed passes, the table has a row per mode and step, and `repeat`, `clean` and `seconds` are empty.
"""

import csv
import io
from collections.abc import Sequence
from itertools import chain

from kvviz.base.errors import KvvizError
from kvviz.experiments.comparison.records import Document, Record, Run
from kvviz.store.files.schema import ModeRecords, by_mode, rows_of

# Maps each column to its Parquet type. Columns that describe the whole comparison come first.
TYPES = (
    dict.fromkeys(("comparison", "model", "weights", "device", "device_name", "dtype"), "string")
    | dict.fromkeys(("attn_implementation", "torch", "transformers"), "string")
    | dict.fromkeys(("prompt_tokens", "new_tokens", "batch"), "int64")
    | {"mode": "string", "repeat": "int64", "clean": "bool_", "step": "int64", "phase": "string"}
    | dict.fromkeys(("seconds", "seconds_median", "seconds_q1", "seconds_q3"), "float64")
    | {"token_ids": "string"}  # one id per sequence of the batch, separated by spaces
    | {"token": "string"}  # the text of the first sequence's token
    | dict.fromkeys(("cache_bytes", "allocated_bytes", "outliving_bytes"), "int64")
)


def columns(document: Document, records: Sequence[Record] = ()) -> dict[str, list[object]]:
    """Return the table by columns; an unknown value is None."""
    found = by_mode(records)
    parts = [_part(run, found.get(run["mode"], ModeRecords())) for run in document["runs"]]
    rows = sum(len(part["step"]) for part in parts)
    table = {name: [value] * rows for name, value in _whole(document).items()}
    return {name: table.get(name) or list(chain.from_iterable(part[name] for part in parts)) for name in TYPES}


def to_csv(document: Document, records: Sequence[Record] = ()) -> str:
    """Return the table as CSV; a text that a spreadsheet would take for a formula gets a leading '."""
    file = io.StringIO()
    writer = csv.writer(file)  # lines end in \r\n (RFC 4180); a cell with \r or \n is quoted
    writer.writerow(TYPES)
    table = columns(document, records)
    writer.writerows(zip(*(_guarded_all(table[name], kind) for name, kind in TYPES.items()), strict=True))
    return file.getvalue()


def to_parquet(document: Document, records: Sequence[Record] = ()) -> bytes:
    """Return the table as a Parquet file. Raises KvvizError if pyarrow is not installed."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise KvvizError("Parquet needs pyarrow, which is not installed here; take csv or json") from error
    schema = pyarrow.schema([(name, getattr(pyarrow, kind)()) for name, kind in TYPES.items()])
    file = io.BytesIO()
    parquet.write_table(pyarrow.table(columns(document, records), schema=schema), file)
    return file.getvalue()


# A spreadsheet takes a cell for a formula if it begins with one of these, including the full-width signs:
# https://owasp.org/www-community/attacks/CSV_Injection
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")


def _guarded_all(column: list[object], kind: str) -> list[object]:
    """Guard a column of texts; each distinct text is guarded once, since most repeat from row to row."""
    if kind != "string":
        return column
    texts = [None if value is None else str(value) for value in column]
    guarded = {text: _guarded(text) for text in set(texts)}
    return [guarded[text] for text in texts]


def _guarded(text: str | None) -> str | None:
    if text is None:
        return None
    text = text.replace("\0", "\ufffd")
    return f"'{text}" if text.startswith(_FORMULA) or text.lstrip().startswith(_FORMULA) else text


def _whole(document: Document) -> dict[str, object]:
    """Return the columns that are the same in every row."""
    names = ("model", "weights", "prompt_tokens", "new_tokens", "batch")
    work = {name: value for name, value in document.items() if name in names}
    environment = {name: value for name, value in document["environment"].items() if name in TYPES}
    return {"comparison": document["id"], **work, **environment}


def _part(run: Run, found: ModeRecords) -> dict[str, list[object]]:
    """Return the rows of one mode by columns: its steps, repeated for each timed pass."""
    steps = len(run["step_s"])
    each: dict[str, Sequence[object]] = {
        "mode": [run["mode"]] * steps,
        "step": list(range(steps)),
        "phase": ["prefill"] + ["decode"] * (steps - 1),
        "seconds_median": run["step_s"],
        "seconds_q1": run["step_s_q1"],
        "seconds_q3": run["step_s_q3"],
        "token_ids": [" ".join(map(str, chosen)) for chosen in zip(*rows_of(run), strict=True)],
        "token": _filled([step.get("piece", step["text"]) for step in found.steps], steps),
        "cache_bytes": run["cache_bytes"] or [None] * steps,
        "allocated_bytes": run["allocated_bytes"] or [None] * steps,
        "outliving_bytes": run.get("outliving_bytes") or [None] * steps,
    }
    timed: Sequence[tuple[int | None, list[float]]] = sorted(found.repeats.items()) or [(None, [])]
    return {
        **{name: list(column) * len(timed) for name, column in each.items()},
        "repeat": [repeat for repeat, _ in timed for _ in range(steps)],
        "clean": [None if repeat is None else found.clean.get(repeat) for repeat, _ in timed for _ in range(steps)],
        "seconds": [s for _, seconds in timed for s in _filled(seconds, steps)],
    }


def _filled(values: Sequence[object], length: int) -> list[object]:
    """Cut or pad to a length; missing values are None."""
    return [*values[:length], *[None] * (length - len(values))]
