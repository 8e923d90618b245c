"""`kvviz new-cache` and `kvviz check-cache`: start a cache design of your own, and test it against the contract."""

from pathlib import Path
from typing import Annotated

import typer

from kvviz.base.errors import KvvizError
from kvviz.caches.designs import own_design
from kvviz.caches.own_designs import folder
from kvviz.caches.starters.write import EXERCISES, OWN, written
from kvviz.cli.files import write_bytes
from kvviz.cli.options import AsJson
from kvviz.cli.output import answer, say

MARKS = {True: "✓", False: "✗", None: "–"}


def new_cache(
    name: Annotated[str, typer.Argument(help="The design's name, which is its file's and its mode's.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The folder.", show_default=False)] = None,
    exercise: Annotated[str, typer.Option(help=f"Start from an exercise: {', '.join(EXERCISES)}.")] = OWN,
    solution: Annotated[bool, typer.Option("--solution", help="Write it solved.")] = False,
) -> None:
    """Write a file to start a cache design of your own from; prints its name."""
    text = written(name, exercise, solved=solution)
    place = output or Path(folder() or ".").expanduser()
    if not place.is_dir():
        raise KvvizError(f"there is no folder {place}; make it first, or name another with -o")
    file = place / f"{name}.py"
    if file.exists():
        raise KvvizError(f"there is a file {file} already; choose another name, or move it away")
    write_bytes(file, text.encode())
    typer.echo(file)
    say(f"fill it in; `kvviz check-cache {file}` says what is missing, and KVVIZ_DESIGNS={place} puts it into the race")


def check_cache(
    file: Annotated[Path, typer.Argument(help="A design's file, which is run.")],
    as_json: AsJson = False,
) -> None:
    """Hold a cache design of your own to the contract; status 2 if it does not meet it."""
    design = own_design(file.expanduser().absolute())
    from kvviz.decoding.contract.checks import check

    checks = list(check(design))
    ok = all(found.ok for found in checks)
    document = {"ok": ok, "exact": design.exact, "checks": [found._asdict() for found in checks]}

    def text() -> str:
        lines = [f"{MARKS[found.ok]} {found.name}: {found.says}" for found in checks]
        first = next((found.name for found in checks if not found.ok), "")
        end = f"It does not meet the contract yet: begin with {first}."
        lines += ["", f"It meets the contract: KVVIZ_DESIGNS={file.parent} puts it into the race." if ok else end]
        return "\n".join(lines)

    answer(document, text, as_json)
    if not ok:
        raise typer.Exit(2)
