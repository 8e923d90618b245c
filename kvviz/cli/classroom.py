"""The commands for before a lesson: `pull` a folder of models, see whether a server is `ready`."""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from kvviz.base.errors import KvvizError
from kvviz.base.words import human
from kvviz.cli.ready import Readiness
from kvviz.models import pull as pulling
from kvviz.models.pulled_folder import Pulled

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def pull(
    models: Annotated[list[str], typer.Argument(help="Catalog ids or Hugging Face ids, owner/name.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder; models that it has stay there.")],
    as_json: AsJson = False,
) -> None:
    """Fetch models into one folder that a server without a network takes: safetensors, tokenizer, checksums."""
    orders = [pulling.order(model, output) for model in dict.fromkeys(models)]
    missing = pulling.check_room(orders, output)
    with _bar(missing) as bar:
        done = [pulling.carry_out(order, bar.update) for order in orders]
    if as_json:
        print(json.dumps({"folder": str(output.absolute()), "models": [_told(model) for model in done]}))
        return
    for model in done:
        whence = f"{model.repo} at {(model.revision or '')[:8]}" if model.repo else "comes with kvviz"
        licence = f"licence {model.licence}" if model.licence else "no licence stated"
        typer.echo(f"{model.model}: {human(model.size)} in {model.folder} ({whence}, {licence})")
    typer.echo(f"A server takes them with KVVIZ_MODELS={output.absolute()}")


def ready(
    models: Annotated[str | None, typer.Option(help="Separated by commas; else all with trained weights.")] = None,
    students: Annotated[int, typer.Option(help="How many will press Run.")] = 30,
    as_json: AsJson = False,
) -> None:
    """Check a server before a lesson: device, disk, models, port, times; status 1 if it is not ready."""
    names = None if models is None else [name.strip() for name in models.split(",") if name.strip()]
    found = Readiness(names, students, os.environ.get("HOST", "127.0.0.1"), _port())
    for check in found.checks():
        if not as_json:
            typer.echo(f"{'✓' if check.ok else '✗'} {check.name}: {check.says}")
            if not check.ok:
                typer.echo(f"    {check.do}")
    if as_json:
        print(json.dumps(found.document()))
    else:
        typer.echo("ready" if found.ready else "not ready: see the lines with ✗")
    raise typer.Exit(0 if found.ready else 1)


def _port() -> int:
    given = os.environ.get("PORT", "8501")
    if not given.isascii() or not given.isdigit() or not 0 < int(given) < 65536:
        raise KvvizError(f"PORT is {given[:20]!r}; it is a number from 1 to 65,535")
    return int(given)


def _told(model: Pulled) -> dict[str, Any]:
    return {**asdict(model), "folder": str(model.folder.absolute())}


def _bar(missing: int) -> Any:
    from tqdm import tqdm

    return tqdm(
        total=missing, unit="B", unit_scale=True, unit_divisor=1024, file=sys.stderr, leave=False, disable=not missing
    )
