"""`kvviz caches`: the same prompt through several cache designs."""

from typing import Annotated

import typer

from kvviz.cli.measure_here import bench_here, document_here
from kvviz.cli.options import AsJson, Batch, Device, Dtype, ModelArgument, NoWait, Weights, names
from kvviz.cli.output import answer, say
from kvviz.experiments.cache_designs.spec import RACED, CachesSpec
from kvviz.experiments.cache_designs.words import text
from kvviz.experiments.kind import Record
from kvviz.models.text import STORY


def caches(
    model: ModelArgument,
    designs: Annotated[str, typer.Option(help="Cache designs, separated by commas.")] = ",".join(RACED),
    weights: Weights = "auto",
    prompt: Annotated[str, typer.Option(help="The prompt of every sequence.")] = STORY,
    new_tokens: Annotated[int, typer.Option(help="Tokens to decode, 2 to 192.")] = 64,
    batch: Batch = 2,
    repeats: Annotated[int, typer.Option(help="Timed passes of each design.")] = 3,
    dtype: Dtype = "float32",
    device: Device = "auto",
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Decode the same prompt with several cache designs; compare tokens, quality, memory, copies and time."""
    spec = CachesSpec(model, names(designs), weights, prompt, new_tokens, batch, repeats, dtype, device)
    begun: set[str] = set()

    def say_part(record: Record) -> None:
        if record["t"] == "part" and record["part"] not in begun:
            begun.add(record["part"])
            say(f"now {record['words']}")

    with bench_here("kvviz caches", patient=not no_wait) as bench:
        document = document_here(spec, bench, say_part)
    answer(document, lambda: text(document), as_json)
