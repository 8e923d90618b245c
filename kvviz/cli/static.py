"""`kvviz static`: the edition without a server, as a folder."""

from pathlib import Path
from typing import Annotated

import typer

from kvviz.cli.measure_here import bench_here, document_here
from kvviz.cli.output import say
from kvviz.experiments.kind import Record


def static(
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write, new or empty.")],
    model: Annotated[str, typer.Option(help="The bundled model that decodes in the browser.")] = "mini-gpt2",
) -> None:
    """Write a folder that any web server shows: live decoding in the browser, a walk, the calculator, the tour."""
    from kvviz.ui.static_edition.folder import anatomy_of, check_empty, write

    check_empty(output)  # before anything is measured
    spec, anatomy = anatomy_of(model), list[Record]()
    with bench_here("kvviz static") as bench:
        document_here(spec, bench, anatomy.append)
    nbytes = write(output, model, anatomy)
    say(f"{nbytes / 1e6:.1f} MB; try it: python -m http.server -d {output}")
    typer.echo(output)
