"""`kvviz roofline`: prefills and decode steps on this device's measured roofline."""

from typing import Annotated

import typer

from kvviz.base.words import millis
from kvviz.cli.measure_here import bench_here, document_here
from kvviz.cli.options import AsJson, Device, Dtype, ModelArgument, NoWait, Weights
from kvviz.cli.output import answer, say
from kvviz.experiments.kind import Record
from kvviz.experiments.roofline.spec import RoofSpec
from kvviz.experiments.roofline.words import text


def roofline(
    model: ModelArgument,
    weights: Weights = "auto",
    tokens: Annotated[int, typer.Option(help="The longest prompt and context; shorter ones are measured too.")] = 512,
    batch: Annotated[int, typer.Option(help="The most sequences decoded together; fewer are measured too.")] = 16,
    dtype: Dtype = "float32",
    device: Device = "auto",
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Place prefills and decode steps on this device's measured roofline, and show where a step's time goes."""
    spec = RoofSpec(model, weights, tokens, batch, dtype, device)
    with bench_here("kvviz roofline", patient=not no_wait) as bench:
        document = document_here(spec, bench, _say_point)
    answer(document, lambda: text(document), as_json)


def _say_point(record: Record) -> None:
    if record["t"] == "point":
        where = f"{record['phase']} at {record['tokens']:,} tokens x {record['batch']}"
        say(f"{record['done']} of {record['of']}, {where}: {millis(record['s'])}")
