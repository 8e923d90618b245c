"""`kvviz selftest`: checks of a device in under two minutes: a report, and a file that imports as a run."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from kvviz.cli.files import check_writable, write_bytes
from kvviz.cli.measure_here import alone, settle
from kvviz.cli.options import AsJson, Device
from kvviz.cli.output import print_json, say
from kvviz.experiments.selftest.children import NAMES, Found, checks
from kvviz.store.files.reading import to_json

FILE = Path("kvviz-selftest.json")
MARKS = {True: "✓", False: "✗", None: "–"}


def selftest(
    device: Device = "auto",
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = FILE,
    as_json: AsJson = False,
) -> None:
    """Check this device in under two minutes: kernels, tokens, memory, graph, clock; status 1 if a check fails."""
    check_writable(output)
    settle()

    from kvviz.device.environment import pick_device

    if device != "auto":
        pick_device(device)  # refuses one that is not here; this process itself leaves the device alone
    found: list[Found] = []
    with alone("kvviz selftest", patient=True):
        for check in checks(device, NAMES):
            found.append(check)
            if not as_json:
                typer.echo(f"{MARKS[check.ok]} {check.name}: {check.says}")
    report = document(found)
    measured = next(check.figures for check in found if check.name == "repeats")
    run = json.loads(to_json(measured["records"], measured["document"])) if measured else {}
    write_bytes(output, json.dumps({**run, **report}).encode())
    if as_json:
        print_json(report)
    else:
        typer.echo("all that applies here passes" if report["ok"] else "not all pass: see the lines with ✗")
        say(f"{output} holds this report; `kvviz import` takes it as a run")
    raise typer.Exit(0 if report["ok"] else 1)


def document(found: list[Found]) -> dict[str, Any]:
    """The report as JSON values: the checks, the environment, and what a class would see."""
    figures = {check.name: check.figures for check in found}
    return {
        "ok": all(check.ok is not False for check in found),
        "checks": [{"name": check.name, "ok": check.ok, "says": check.says} for check in found],
        "environment": figures.get("place", {}).get("environment"),
        "classroom": figures.get("classroom", {}),
    }
