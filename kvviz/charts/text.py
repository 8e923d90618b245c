"""Makes text from outside safe for Plotly."""

import html


def as_text(value: object) -> str:
    """Escape a name from outside, because Plotly renders some HTML tags, such as links, in any text."""
    return html.escape(str(value), quote=False)
