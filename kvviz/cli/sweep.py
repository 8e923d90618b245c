"""`kvviz sweep`: comparisons over a grid, with a journal that an interrupted sweep goes on from."""

from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from kvviz.base.errors import KvvizError
from kvviz.base.words import lasting
from kvviz.cli.measure_here import alone, bench_here, document_here, settle
from kvviz.cli.options import ATTENTION, DEVICE, WEIGHTS, AsJson, ModelsOption, NoWait, counts, names
from kvviz.cli.output import ProgressBar, answer
from kvviz.experiments.kind import Device, Record
from kvviz.experiments.sweep import journal
from kvviz.experiments.sweep.plan import preset_spec
from kvviz.experiments.sweep.spec import PRESETS, SweepSpec, check_sweep
from kvviz.experiments.sweep.words import sweep_text


def sweep(
    model: ModelsOption = None,
    preset: Annotated[str, typer.Option(help=f"A grid by name: {', '.join(PRESETS)}.")] = "",
    weights: Annotated[str | None, WEIGHTS] = None,
    mode: Annotated[str | None, typer.Option(help="Modes, separated by commas.")] = None,
    prompt: Annotated[str | None, typer.Option(help="A text whose tokens fill each prompt, repeated or cut.")] = None,
    prompt_tokens: Annotated[str | None, typer.Option(help="Lengths of the prompt, such as 64,128,256.")] = None,
    new_tokens: Annotated[str | None, typer.Option(help="Tokens to decode, such as 8,32,128.")] = None,
    batch: Annotated[str | None, typer.Option(help="Sequences decoded together, such as 1,2,4.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16, float16, separated by commas.")] = None,
    repeats: Annotated[int | None, typer.Option(help="Timed passes of each mode in each cell.")] = None,
    budget: Annotated[float | None, typer.Option(help="Seconds; to keep to it, repeats and then cells go.")] = None,
    device: Annotated[str | None, DEVICE] = None,
    attn: Annotated[str | None, ATTENTION] = None,
    seed: Annotated[int | None, typer.Option(help="Of random weights and of the random prompts.")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Keep a journal in this file; go on from it if it exists.")
    ] = None,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Decode over a grid of lengths, batches and models, with and without the cache; prints a table."""
    given = {
        "models": None if model is None else names(model),
        "weights": weights,
        "modes": None if mode is None else names(mode),
        "prompt": prompt,
        "prompt_tokens": None if prompt_tokens is None else counts("--prompt-tokens", prompt_tokens),
        "new_tokens": None if new_tokens is None else counts("--new-tokens", new_tokens),
        "batches": None if batch is None else counts("--batch", batch),
        "dtypes": None if dtype is None else names(dtype),
        "repeats": repeats,
        "budget_s": budget,
        "device": device,
        "attn": attn,
        "seed": seed,
    }
    earlier = _open_journal(resume)
    given = {name: value for name, value in given.items() if value is not None}
    spec = _spec(given, preset, earlier, patient=not no_wait)
    document = _measure(spec, earlier, resume, patient=not no_wait)
    answer(document, lambda: sweep_text(document), as_json)


def _open_journal(path: Path | None) -> list[Record]:
    """Read what an earlier start has left in a journal. Raises KvvizError if it can't be read or written."""
    if path is None:
        return []
    try:
        records: list[Record] = [*journal.read(path)] if path.exists() else []
        path.open("ab").close()
    except (OSError, ValueError) as error:
        raise KvvizError(f"{str(path)[:200]} can't be written ({type(error).__name__})") from error
    return records


def _spec(given: dict[str, Any], preset: str, earlier: list[Record], *, patient: bool) -> SweepSpec:
    """The sweep that these options ask for, or without a model and a preset the journal's.

    A preset without a model takes the journal's model, else the first of its own that this device can do.
    """
    begun = journal.spec_of(earlier)
    if begun is not None and "models" not in given:
        if not preset:
            return replace(begun, **given)
        given = {**given, "models": begun.models}
    if not preset and "models" not in given:
        raise KvvizError(f"a sweep needs --model, or --preset with one of {', '.join(PRESETS)}")
    if not preset:
        return SweepSpec(**given)
    spec = preset_spec(preset, **given)
    return spec if "models" in given else preset_spec(preset, _device(spec.device, patient), **given)


def _device(name: str, patient: bool) -> Device:
    """Measure what a device can do: its rates, its free bytes."""
    settle()

    from kvviz.device.environment import about, pick_device
    from kvviz.device.measure_ceilings import measure_rates

    device = pick_device(name)
    with alone("kvviz sweep", patient):
        return cast(Device, {**about(device), "rates": asdict(measure_rates(device))})


def _measure(spec: SweepSpec, earlier: list[Record], path: Path | None, *, patient: bool) -> Record:
    """Measure a sweep in this process and return its document; each record goes to the journal at once.

    Raises KvvizError with the first cell's sentence if no cell could be measured, Halted when a signal ends it.
    """
    check_sweep(spec)
    kept = "the sweep was stopped and nothing of it is kept; with --resume FILE its passes would be"
    if path is not None:
        kept = f"the sweep was stopped; its passes are in {path}, and `kvviz sweep --resume {path}` goes on from there"
    bar = ProgressBar("pass", "{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} passes{postfix}")

    def note(record: Record) -> None:
        if path is not None:
            journal.write(path, record)
        if record["t"] == "sweep_started":
            bar.heading = record["plan"]["words"]
        elif record["t"] == "progress" and record["of"]:
            left = record["left_s"]
            bar.show(record["done"], record["of"], "" if left is None else f"{lasting(left)} left")

    with (
        closing(bar),
        bench_here("kvviz sweep", patient=patient, when_stopped=lambda: kept, earlier=earlier) as bench,
    ):
        document = document_here(spec, bench, note)
    if not document["rows"]:
        raise KvvizError(document["failed"][0]["message"])
    return document
