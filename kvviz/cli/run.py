"""`kvviz run`: one comparison, measured in this process, printed, kept and checked."""

import json
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from kvviz.base.errors import KvvizError
from kvviz.base.records import Sampling
from kvviz.cli.files import check_writable, has_store, open_store, write_bytes
from kvviz.cli.measure_here import bench_here, document_here, usual_here
from kvviz.cli.options import (
    AsJson,
    Attention,
    Batch,
    CacheBudget,
    DeviceOrSplit,
    KvEvents,
    ModelOption,
    NoWait,
    Pyramid,
    Weights,
    names,
)
from kvviz.cli.output import ProgressBar, print_json, say
from kvviz.decoding.modes import mode_named
from kvviz.experiments.comparison import expected_text
from kvviz.experiments.comparison import records as comparison
from kvviz.experiments.comparison.figures import finished
from kvviz.experiments.comparison.spec import ComparisonSpec, how_often
from kvviz.experiments.comparison.verdict import verdict
from kvviz.experiments.kind import Record
from kvviz.models.text import STORY


def run(
    model: ModelOption,
    weights: Weights = "auto",
    mode: Annotated[str, typer.Option(help="Modes, separated by commas.")] = "uncached,cached",
    prompt: Annotated[str | None, typer.Option(help="The prompt's text.")] = None,
    prompt_file: Annotated[Path | None, typer.Option(help="A file that holds the prompt.")] = None,
    prompt_tokens: Annotated[int | None, typer.Option(help="That many seeded random tokens as the prompt.")] = None,
    new_tokens: Annotated[int, typer.Option(help="Tokens to decode.")] = 64,
    batch: Batch = 1,
    repeats: Annotated[int | None, typer.Option(help="Timed passes of each mode: exactly so many.")] = None,
    precision: Annotated[
        float | None, typer.Option(help="Take more passes until the speed-up and the curves are known to this share.")
    ] = None,
    budget: Annotated[float | None, typer.Option(help="Seconds that the timed passes may take for that.")] = None,
    warmup: Annotated[int, typer.Option(help="Untimed passes of each mode; the first checks equivalence.")] = 1,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, float16, or auto: the device's usual one.")] = "auto",
    device: DeviceOrSplit = "auto",
    attn: Attention = "sdpa",
    draft: Annotated[
        str | None, typer.Option(help="The model that drafts for the mode speculative: one with the same tokenizer.")
    ] = None,
    cache_budget: CacheBudget = None,
    pyramid: Pyramid = False,
    endpoint: Annotated[
        str | None, typer.Option(help="The server of the mode endpoint; its key comes from KVVIZ_ENDPOINT_KEY.")
    ] = None,
    endpoint_model: Annotated[
        str | None, typer.Option(help="What that server calls the model, if it has several.")
    ] = None,
    kv_events: KvEvents = None,
    seed: Annotated[int, typer.Option(help="Of random weights, random prompts and draws.")] = 0,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    top_k: Annotated[int | None, typer.Option(help="Draw from the k most likely tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the most likely tokens that hold this share.")] = None,
    stop_at_eos: Annotated[
        bool,
        typer.Option("--stop-at-eos", help="End where every row has had the end token; all rows count until then."),
    ] = False,
    stop: Annotated[str, typer.Option(help="End when this text has been written.")] = "",
    pin: Annotated[bool, typer.Option("--pin", help="Keep the text as the expected one.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="End with status 1 unless the text is the pinned one in every exact mode.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write a file that `import` takes.")
    ] = None,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Decode the same work in several modes, check that they agree and time them; always prints JSON."""
    work = ComparisonSpec(
        model=model,
        weights=weights,
        modes=names(mode),
        prompt=_prompt(prompt, prompt_file, prompt_tokens),
        prompt_tokens=prompt_tokens,
        new_tokens=new_tokens,
        batch=batch,
        **how_often(repeats, precision),
        budget_s=budget,
        warmup=warmup,
        dtype=usual_here(model, weights, device) if dtype == "auto" else dtype,
        device=device,
        attn=attn,
        draft=draft,
        endpoint=endpoint,
        endpoint_model=endpoint_model,
        kv_events=kv_events,
        cache_budget=cache_budget,
        pyramid=pyramid,
        sampling=Sampling(temperature, top_k, top_p, seed),
        stop_at_eos=stop_at_eos,
        stop_text=stop,
    )
    if output is not None:
        check_writable(output)
    expected = _expected(work, pin, check)
    document, records = measure(work, patient=not no_wait)
    print_json({**document, "verdict": verdict(document)})
    _keep(document, records, output)
    if pin:
        expected_text.pin(expected_text.key_of(work), expected_text.expected_of(document))
    if expected is not None:
        same, sentence = expected_text.compare_expected(expected, document)
        alike, sentences = expected_text.compare_modes(document)
        for words in (sentence, *sentences):
            say(words)
        if not (same and alike):
            raise typer.Exit(1)


def _prompt(text: str | None, file: Path | None, tokens: int | None) -> str | None:
    if sum(given is not None for given in (text, file, tokens)) > 1:
        raise KvvizError("give one of --prompt, --prompt-file and --prompt-tokens")
    if file is not None:
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise KvvizError(f"{file} can't be read as UTF-8 text ({type(error).__name__})") from error
    return text if text is not None or tokens is not None else STORY


def measure(work: ComparisonSpec, *, patient: bool) -> tuple[comparison.Document, list[comparison.Record]]:
    """Measure a comparison in this process and return its document and records; a bar shows its steps.

    Raises Halted when a signal ends it; what was measured until then is in the store, where there is one.
    """
    for name in work.modes:
        mode_named(name)  # an unknown mode is refused before a model is loaded
    records: list[Record] = []
    steps, total = 0, len(work.modes) * work.new_tokens * (work.warmup + work.repeats)
    bar = ProgressBar("step")

    def note(record: Record) -> None:
        nonlocal steps
        looked = record["t"] == "first_look"  # shows how far the check is
        steps += len(record["modes"]) if looked else len(record.get("s", ()))
        bar.show(steps, total)
        if not looked:
            records.append(record)

    keep_part = partial(_keep_part, work, records)
    with closing(bar), bench_here("kvviz run", patient=patient, when_stopped=keep_part) as bench:
        document_here(work, replace(bench, watched=True), note)
    return finished(records)


def _keep_part(work: ComparisonSpec, records: list[Record]) -> str:
    """Keep what a stopped run had measured, if there is a store; returns a sentence that says so."""
    if not records or not has_store():
        return "the run was stopped; nothing of it is kept"
    run_id = records[0]["id"]
    if not any(record["t"] == "proof" for record in records):
        return "the run was stopped in its first look, before there was anything to keep"
    message = "it was stopped on the command line; what it had measured until then is kept"
    try:
        store = open_store()
        store.begin(run_id, work.to_dict(), origin="run")
        store.append(run_id, [json.dumps(record) for record in [*records, {"t": "stopped", "message": message}]])
        store.finish(run_id, "stopped", message=message)
    except KvvizError as error:
        return f"the run was stopped; it was not kept: {error}"
    return f"the run was stopped; what it had measured is kept as {run_id}"


def _keep(document: comparison.Document, records: list[comparison.Record], output: Path | None) -> None:
    """Write a comparison to the file that was asked for, and keep it in the store, if there is one.

    A store that fails is a sentence on standard error: the comparison itself has been printed.
    """
    from kvviz.store.files import exchange, reading

    done = reading.Imported(document, records)
    if output is not None:
        write_bytes(output, exchange.written(done, "json"))
    if has_store():
        try:
            exchange.keep(open_store(), done, origin="run")
        except KvvizError as error:
            say(f"this run was not kept: {error}")


def _expected(work: ComparisonSpec, pin: bool, check: bool) -> expected_text.Pinned | None:
    """The pinned text that `--check` compares with. Both options are refused before anything is measured."""
    if pin and check:
        raise KvvizError("give one of --pin and --check")
    if not (pin or check):
        return None
    found = expected_text.pinned(expected_text.key_of(work))  # also for --pin, to see that pins can be kept
    if check and found is None:
        raise KvvizError("no text is pinned for this model, prompt and settings; `run --pin` with the same pins one")
    return found if check else None
