"""What the tables of several pages share."""

from collections.abc import Sequence

import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig


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
