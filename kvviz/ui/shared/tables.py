"""What the tables of several pages share."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

WHOLE = 20  # rows
SEEN = 11  # rows, by which a browser finds how wide a column has to be
WIDE = 9  # columns, beyond which a table has to be moved sideways on most screens

_BEFORE = r"([\d,.]+( [+×] [\d,.]+)+ = |[\d,]+, )?"  # the terms of a figure, or the first one of a pair
_FIGURE = re.compile(
    _BEFORE + r"(≈ )?[-−<]?[\d,.]+(e-?\d+| × 10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)?( ?[\w/%×µ]{1,12})?( to [\d,.]+)?|–|none|unknown"
)


def draw_table(
    rows: Sequence[Mapping[str, object]],
    *,
    columns: Mapping[str, ColumnConfig] | None = None,
    **options: Any,
) -> Any:
    """Draw a table: figures stand on the right, also those with a unit, and near their names.

    Streamlit writes a column's name on the left, so a table is no wider than what stands in it. It shows a pinned
    column paler than the others, so the first one is pinned only in a table of many columns. A table of up to 20 rows
    shows all of them.
    """
    if len(rows) <= WHOLE:
        options.setdefault("height", "content")
    if len(rows) <= SEEN:
        options.setdefault("width", "content")
    titles = list(rows[0]) if rows else []
    found = {title: _column([row[title] for row in rows]) for title in titles[1:]}
    if len(titles) > WIDE:
        found[titles[0]] = st.column_config.Column(pinned=True)
    drawn = {**{title: column for title, column in found.items() if column}, **(columns or {})}
    return st.dataframe(rows, hide_index=True, column_config=drawn, placeholder="–", **options)


def _column(values: Sequence[object]) -> ColumnConfig | None:
    texts = [value for value in values if isinstance(value, str) and value]
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if texts and not numbers and all(_FIGURE.fullmatch(text) for text in texts):
        return st.column_config.TextColumn(alignment="right")
    return None


def localized(*titles: str) -> dict[str, ColumnConfig]:
    """The configuration of these columns: their numbers stand as the reader's country writes them."""
    return {title: st.column_config.NumberColumn(format="localized") for title in titles}


COUNTS = localized("state bytes", "bytes", "allocated")  # the columns that count bytes one by one


def exact(count: int) -> int | None:
    """A number for a table's cell; None above what a browser counts exactly, which no cache has."""
    return count if abs(count) < 2**53 else None


def shape_text(shape: Sequence[int] | None) -> str:
    """A tensor's shape for a table's cell, which is empty without one."""
    return f"[{', '.join(map(str, shape))}]" if shape else ""
