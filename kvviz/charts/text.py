"""Text from elsewhere, made safe for Plotly."""

import html
from typing import Any


def as_text(value: Any) -> str:
    """A name that somebody else gave, as Plotly shows it: it reads a few HTML tags, links among them, in any text."""
    return html.escape(str(value), quote=False)
