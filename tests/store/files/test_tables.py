"""The table: a row per mode, repeat and step; CSV and Parquet hold the same."""

import copy
import csv
import io

import pytest
from pyarrow import parquet

from kvviz.base.errors import KvvizError
from kvviz.store.files import tables
from kvviz.store.files.tables import TYPES


def read_csv(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.slow
def test_a_row_per_mode_repeat_and_step(made):
    rows = read_csv(tables.to_csv(made.document, made.records))
    assert len(rows) == 3 * 2 * 6
    assert [row["step"] for row in rows[:7]] == ["0", "1", "2", "3", "4", "5", "0"]
    assert {row["phase"] for row in rows if row["step"] == "0"} == {"prefill"}
    times = [r for r in made.records if r["t"] == "times" and (r["mode"], r["repeat"]) == ("cached", 1)]
    measured = [float(row["seconds"]) for row in rows if (row["mode"], row["repeat"]) == ("cached", "1")]
    assert measured == [s for record in times for s in record["s"]]


def test_ids_bytes_and_pieces(single, batch):
    rows = [row for row in read_csv(tables.to_csv(single.document, single.records)) if row["mode"] == "cached"]
    run = single.document["runs"][1]
    assert [int(row["token_ids"]) for row in rows[:6]] == run["token_ids"]
    assert [int(row["cache_bytes"]) for row in rows[:6]] == run["cache_bytes"]
    assert "".join(row["token"].removeprefix("'") for row in rows[:6]) == run["text"]
    several = read_csv(tables.to_csv(batch.document, batch.records))[0]["token_ids"].split()
    assert [int(i) for i in several] == [ids[0] for ids in batch.document["runs"][0]["token_ids"]]


def test_without_records_there_is_a_row_per_mode_and_step(made):
    rows = read_csv(tables.to_csv(made.document))
    assert len(rows) == 3 * 6
    assert {(row["repeat"], row["seconds"], row["token"]) for row in rows} == {("", "", "")}
    assert float(rows[0]["seconds_median"]) == made.document["runs"][0]["step_s"][0]


def test_parquet_holds_what_csv_holds(made):
    table = parquet.read_table(io.BytesIO(tables.to_parquet(made.document, made.records)))
    assert table.to_pydict() == tables.columns(made.document, made.records)
    kinds = [
        (field.name, {"double": "float64", "bool": "bool_"}.get(str(field.type), str(field.type)))
        for field in table.schema
    ]
    assert kinds == list(TYPES.items())
    rows = read_csv(tables.to_csv(made.document, made.records))
    for name in TYPES:
        texts = ["" if value is None else str(value) for value in table.column(name).to_pylist()]
        assert [row[name].removeprefix("'") for row in rows] == [text.removeprefix("'") for text in texts]


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "  =cmd|' /C calc'!A0", "＝1", "-", '="a,b"']
)
def test_no_text_is_a_formula(single, text):
    document, records = copy.deepcopy((single.document, single.records))
    document["model"] = document["environment"]["device_name"] = text
    next(record for record in records if record["t"] == "proof")["modes"]["cached"]["piece"] = text
    rows = read_csv(tables.to_csv(document, records))
    assert {row["model"] for row in rows} == {row["device_name"] for row in rows} == {f"'{text}"}
    assert any(row["token"] == f"'{text}" for row in rows)


def test_a_text_over_several_lines_stays_one_cell(single):
    document = {**single.document, "model": 'a\nb,"c"\0'}
    assert {row["model"] for row in read_csv(tables.to_csv(document))} == {'a\nb,"c"\ufffd'}


def test_parquet_without_pyarrow_gets_a_sentence(single, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(KvvizError, match="pyarrow"):
        tables.to_parquet(single.document)
