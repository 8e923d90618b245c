"""`kvviz import`: a comparison from elsewhere, kept like one of this machine's."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from kvviz.cli.options import AsJson
from kvviz.cli.output import answer
from kvviz.cli.storage import open_store, read_bytes


def import_(
    file: Annotated[str, typer.Argument(help="JSON of `export`, `run` or a recording; - for standard input.")],
    as_json: AsJson = False,
) -> None:
    """Keep a comparison from elsewhere like one of this machine's; prints its new id."""
    from kvviz.store.files import exchange

    data = sys.stdin.buffer.read() if file == "-" else read_bytes(file)
    comparison_id = exchange.take_in(open_store(), data, title="" if file == "-" else Path(file).stem)
    answer({"id": comparison_id}, lambda: comparison_id, as_json)
