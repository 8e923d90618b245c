"""`kvviz serving`: many sequences in one memory, and what a shared prefix saves."""

from typing import Annotated

import typer

from kvviz.base.errors import KvvizError
from kvviz.cli.measure_here import bench_here, document_here
from kvviz.cli.options import AsJson, NoWait, Weights
from kvviz.cli.output import answer, say
from kvviz.experiments.kind import Record, Spec
from kvviz.experiments.serving.spec import (
    ASKS,
    EDITED,
    FIRST,
    MOST_ASKS,
    SECOND,
    SYSTEM,
    ArrivalsSpec,
    SharingSpec,
    TalkSpec,
)
from kvviz.experiments.serving.words import text


def serving(
    model: Annotated[str | None, typer.Argument(help="For shared prompts; without one, memory alone.")] = None,
    weights: Weights = "auto",
    requests: Annotated[int, typer.Option(help="Sequences that arrive.")] = 80,
    rate: Annotated[float, typer.Option(help="Arrivals per tick, on average.")] = 1.0,
    slots: Annotated[int, typer.Option(help="Tokens that fit in the memory.")] = 2048,
    longest: Annotated[int, typer.Option(help="Most tokens in a sequence.")] = 256,
    seed: Annotated[int, typer.Option(help="Of the requests.")] = 0,
    share: Annotated[int, typer.Option(help="Requests that share a system prompt.")] = 4,
    system: Annotated[str, typer.Option(help="The system prompt.")] = SYSTEM,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Give many sequences one memory under four policies; with a model, measure what a shared prefix saves."""
    if not 2 <= share <= MOST_ASKS:
        raise KvvizError(f"--share is {share}; it is a whole number from 2 to {MOST_ASKS}")
    specs: dict[str, Spec] = {"fragmentation": ArrivalsSpec(requests, rate, slots, longest, seed)}
    if model is not None:
        specs["sharing"] = SharingSpec(model, system, ASKS[:share], weights)
        specs["conversation"] = TalkSpec(model, FIRST, SECOND, EDITED, weights)
    with bench_here("kvviz serving", patient=not no_wait) as bench:
        documents = {name: document_here(spec, bench, _say_policy) for name, spec in specs.items()}
    answer(documents, lambda: text(documents), as_json)


def _say_policy(record: Record) -> None:
    if record["t"] == "way":
        say(f"{record['done']} of {record['of']}, {record['title']}")
