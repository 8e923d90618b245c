"""`kvviz export`: a comparison as a file."""

from pathlib import Path
from typing import Annotated

import typer

from kvviz.cli.storage import open_store, read_bytes, write_bytes


def export(
    comparison: Annotated[str, typer.Argument(help="The id of a kept comparison, or a file that `import` takes.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")],
    form: Annotated[str, typer.Option("--format", help="json, csv, parquet or html.")] = "json",
) -> None:
    """Write a comparison as a file; prints the file's name."""
    from kvviz.store.files import exchange, reading

    is_file = Path(comparison).is_file()
    found = reading.read(read_bytes(comparison)) if is_file else exchange.kept(open_store(), comparison)
    write_bytes(output, exchange.written(found, form))
    typer.echo(output)
