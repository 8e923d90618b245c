"""A table in a notebook: HTML without a script, in the colours of the page around it, be that light or dark."""

from collections.abc import Iterable, Sequence

_CELL = "padding:.25em .9em .25em 0;text-align:left;color:inherit;background:none"


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are HTML already: whoever makes them escapes what a stranger wrote."""
    titles = "".join(f'<th style="{_CELL};font-weight:600">{head}</th>' for head in heads)
    drawn = "".join("<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in row) + "</tr>" for row in rows)
    return (
        f'<table style="border-collapse:collapse;margin-top:.6em;color:inherit;background:none">'
        f"<thead><tr>{titles}</tr></thead><tbody>{drawn}</tbody></table>"
    )
