"""`kvviz export` and `kvviz import`; files and the store of runs, as commands use them."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvviz.base.errors import KvvizError
from kvviz.cli.options import AsJson
from kvviz.cli.output import answer, say

if TYPE_CHECKING:
    from kvviz.store.db.store import Store


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


def import_(
    files: Annotated[
        list[str],
        typer.Argument(help="JSON of `export` or `run`, a recording, a sweep's journal; - for standard input."),
    ],
    as_json: AsJson = False,
) -> None:
    """Keep runs and sweeps from elsewhere like this machine's; prints the new ids."""
    from kvviz.store.files import exchange

    store, ids = open_store(), list[str | None]()
    for file in files:
        try:
            data = sys.stdin.buffer.read() if file == "-" else read_bytes(file)
            ids.append(exchange.take_in(store, data, title="" if file == "-" else Path(file).stem))
        except KvvizError as error:
            if len(files) == 1:
                raise
            say(f"{file[:200]}: {error}")
            ids.append(None)
    taken = [work_id for work_id in ids if work_id]
    answer({"id": next(iter(taken), None), "ids": ids}, lambda: "\n".join(taken), as_json)
    if len(taken) < len(files):
        raise typer.Exit(2)


def has_store() -> bool:
    """Whether the packages of the store are installed; a machine that only measures does without."""
    return find_spec("sqlalchemy") is not None


def open_store() -> "Store":
    """Open the store of runs. Raises KvvizError where its packages are not installed."""
    if not has_store():
        raise KvvizError("the store of runs needs the dashboard's packages (sqlalchemy), which are not installed here")
    from kvviz.store.db.store import Store

    return Store()


def read_bytes(file: str) -> bytes:
    """Read a file. Raises KvvizError."""
    try:
        return Path(file).read_bytes()
    except (OSError, ValueError) as error:
        raise KvvizError(f"{file[:200]} can't be read ({type(error).__name__})") from error


def check_writable(file: Path) -> None:
    """Raises KvvizError where a file can't be written, before anything is measured for it."""
    if file.is_dir() or not os.access(file.absolute().parent, os.W_OK):
        raise KvvizError(f"{file} can't be written")


def write_bytes(file: Path, data: bytes) -> None:
    """Write a file. Raises KvvizError."""
    try:
        file.write_bytes(data)
    except (OSError, ValueError) as error:
        raise KvvizError(f"{file} can't be written ({type(error).__name__})") from error
