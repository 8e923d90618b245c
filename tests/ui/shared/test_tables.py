"""Tables: figures on the right, also those with a unit, and the first column in view."""

from kvviz.ui.shared import tables


def test_columns_of_figures_stand_on_the_right(monkeypatch):
    drawn = {}
    monkeypatch.setattr(tables.st, "dataframe", lambda rows, **options: drawn.update(rows=rows, **options))
    rows = [
        {"design": "16 blocks", "a step": "1.2 ms", "tokens": "16 alike so far", "bytes": 12, "held": "–"},
        {"design": "8 bits", "a step": "–", "tokens": "7 of 16 differ", "bytes": 9, "held": "3 KiB"},
    ]
    tables.draw_table(rows, columns=tables.localized("bytes"), key="t")
    columns = drawn["column_config"]
    assert columns["design"]["pinned"] is True
    assert {title for title, column in columns.items() if column.get("alignment") == "right"} == {"a step", "held"}
    assert columns["bytes"]["type_config"]["format"] == "localized"
    assert (drawn["rows"], drawn["key"], drawn["hide_index"]) == (rows, "t", True)


def test_an_empty_table_has_no_columns(monkeypatch):
    drawn = {}
    monkeypatch.setattr(tables.st, "dataframe", lambda rows, **options: drawn.update(options))
    tables.draw_table([])
    assert drawn["column_config"] == {}
