"""`kvviz ready`: whether a server is ready for a lesson."""

import os
from typing import Annotated

import typer

from kvviz.base.errors import KvvizError
from kvviz.cli.lesson_checks import Readiness
from kvviz.cli.options import AsJson, names
from kvviz.cli.output import print_json


def ready(
    models: Annotated[
        str | None, typer.Option(help="Separated by commas; all with trained weights if not given.")
    ] = None,
    students: Annotated[int, typer.Option(help="How many will press Run.")] = 30,
    as_json: AsJson = False,
) -> None:
    """Check a server before a lesson: device, disk, models, port, times; status 1 if it is not ready."""
    chosen = None if models is None else [name for name in names(models) if name]
    found = Readiness(chosen, students, os.environ.get("HOST", "127.0.0.1"), _port())
    for check in found.checks():
        if not as_json:
            typer.echo(f"{'✓' if check.ok else '✗'} {check.name}: {check.says}")
            if not check.ok:
                typer.echo(f"    {check.do}")
    if as_json:
        print_json(found.document())
    else:
        typer.echo("ready" if found.ready else "not ready: see the lines with ✗")
    raise typer.Exit(0 if found.ready else 1)


def _port() -> int:
    given = os.environ.get("PORT", "8501")
    if not given.isascii() or not given.isdigit() or not 0 < int(given) < 65536:
        raise KvvizError(f"PORT is {given[:20]!r}; it is a number from 1 to 65,535")
    return int(given)
