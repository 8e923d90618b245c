"""Sources on the memory page: a link has the name of its site for words."""

import re

import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

_SITE = r"https?://(?:www\.)?([^/\s)]+)"
_ADDRESS = re.compile(rf"{_SITE}[^\s)]*(?<![.,;])")


def linked(text: str) -> str:
    """A text of ours as Markdown, in which the site's name stands for each address."""
    return _ADDRESS.sub(r"[\1](\g<0>)", text)


def sources(width: int | None = None) -> ColumnConfig:
    """The configuration of a table's column of addresses."""
    return st.column_config.LinkColumn(display_text=_SITE, width=width)
