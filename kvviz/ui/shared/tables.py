"""What the tables of several pages share."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

WHOLE = 20  # rows

_FIGURE = re.compile(r"(≈ )?[-−<]?[\d,.]+(e-?\d+| × 10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)?( ?[\w/%×µ]{1,12})?( to [\d,.]+)?|–|none|unknown")


def draw_table(
    rows: Sequence[Mapping[str, object]],
    *,
    columns: Mapping[str, ColumnConfig] | None = None,
    **options: Any,
) -> Any:
    """Draw a table: figures stand on the right, also those with a unit, and the first column stays in view.

    A table of up to 20 rows shows all of them.
    """
    if len(rows) <= WHOLE:
        options.setdefault("height", "content")
    titles = list(rows[0]) if rows else []
    found = {title: _column(title == titles[0], [row[title] for row in rows]) for title in titles}
    drawn = {**{title: column for title, column in found.items() if column}, **(columns or {})}
    return st.dataframe(rows, hide_index=True, column_config=drawn, placeholder="–", **options)


def _column(first: bool, values: Sequence[object]) -> ColumnConfig | None:
    if first:
        return st.column_config.Column(pinned=True)
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


def shape_text(shape: Sequence[int] | None, none: str = "none") -> str:
    """A tensor's shape for a table's cell."""
    return f"[{', '.join(map(str, shape))}]" if shape else none
