"""Text from elsewhere, made safe for Plotly."""

import html


def as_text(value: object) -> str:
    """A name that somebody else gave, as Plotly shows it: it reads a few HTML tags, links among them, in any text."""
    return html.escape(str(value), quote=False)
