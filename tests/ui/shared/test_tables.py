"""Tables: figures on the right and near their names, also those with a unit; row names pale only where they must be."""

import pytest

from kvviz.ui.shared import tables


def test_columns_of_figures_stand_on_the_right(monkeypatch):
    drawn = {}
    monkeypatch.setattr(tables.st, "dataframe", lambda rows, **options: drawn.update(rows=rows, **options))
    rows = [
        {"design": "16 blocks", "a step": "1.2 ms", "tokens": "16 alike so far", "bytes": 12, "held": "–"},
        {
            "design": "8 bits",
            "a step": "–",
            "tokens": "7 of 16 differ",
            "bytes": 9,
            "held": "3 × 2 = 1,006 KiB",
        },
    ]
    tables.draw_table(rows, columns=tables.localized("bytes"), key="t")
    columns = drawn["column_config"]
    assert {title for title, column in columns.items() if column.get("alignment") == "right"} == {"a step", "held"}
    assert columns["bytes"]["type_config"]["format"] == "localized"
    assert (drawn["rows"], drawn["key"], drawn["hide_index"]) == (rows, "t", True)


@pytest.mark.parametrize(("figures", "rows", "pins", "width"), [(8, 11, False, "content"), (9, 12, True, None)])
def test_a_small_table_is_as_wide_as_its_figures_and_a_wide_one_keeps_its_names_in_view(
    monkeypatch, figures, rows, pins, width
):
    drawn = {}
    monkeypatch.setattr(tables.st, "dataframe", lambda rows, **options: drawn.update(options))
    tables.draw_table([{"name": "a", **{f"f{i}": i for i in range(figures)}}] * rows)
    assert bool((drawn["column_config"].get("name") or {}).get("pinned")) is pins
    assert drawn.get("width") == width


def test_an_empty_table_has_no_columns(monkeypatch):
    drawn = {}
    monkeypatch.setattr(tables.st, "dataframe", lambda rows, **options: drawn.update(options))
    tables.draw_table([])
    assert drawn["column_config"] == {}
