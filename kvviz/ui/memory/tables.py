"""What the memory page's tables and charts share."""

from collections.abc import Sequence

import streamlit as st

from kvviz.ui.shared import plots

CHART = {**plots.CHART, "toImageButtonOptions": {"format": "svg", "filename": "kvviz-memory"}}
COUNTS = {  # the columns that count bytes one by one
    name: st.column_config.NumberColumn(format="localized") for name in ("state bytes", "bytes", "allocated")
}


def exact(count: int) -> int | None:
    """A number for a table's cell; None above what a browser counts exactly, which no cache has."""
    return count if abs(count) < 2**53 else None


def shape_text(shape: Sequence[int]) -> str:
    """A tensor's shape for a table's cell."""
    return f"[{', '.join(map(str, shape))}]" if shape else "none"
