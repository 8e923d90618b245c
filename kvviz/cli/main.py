"""The command line: the same answers headless.

`--json` prints one JSON document on standard output and nothing else there.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from kvviz.base.errors import KvvizError
from kvviz.base.precision import PRECISIONS, WEIGHT_BITS, weight_bytes
from kvviz.base.records import Sampling, new_id
from kvviz.base.words import human, millis
from kvviz.cli import classroom
from kvviz.cli.measure_here import (
    Halted,
    alone,
    asked_for,
    bench_here,
    carry_out,
    ceilings_here,
    document_here,
    open_journal,
    say,
    settle,
)
from kvviz.cost.ceilings import ceilings_text
from kvviz.cost.flops import document as cost_document
from kvviz.cost.flops import text as cost_text
from kvviz.cost.shape import read_shape
from kvviz.experiments.cache_designs.spec import RACED, CachesSpec
from kvviz.experiments.cache_designs.words import text as caches_text
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.comparison.verdict import verdict
from kvviz.experiments.kind import Spec
from kvviz.experiments.roofline.spec import RoofSpec
from kvviz.experiments.roofline.words import text as roofline_text
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
from kvviz.experiments.serving.words import text as serving_text
from kvviz.experiments.sweep.spec import PRESETS
from kvviz.experiments.sweep.words import sweep_text
from kvviz.memory.formula import Memory, kv_memory
from kvviz.memory.views import VIEWS
from kvviz.models.catalog.rows import models as catalog_models
from kvviz.models.hub_config import fetch_config
from kvviz.models.sources import Source, beside_catalog, find_source, looks_like_hub_id, stored_weights
from kvviz.models.spec import ModelSpec
from kvviz.models.text import STORY

app = typer.Typer(add_completion=False, no_args_is_help=False, pretty_exceptions_enable=False)

UsageError = typer.BadParameter.__base__  # typer has no public name for it
ROOT = Path(__file__).resolve().parents[2]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Refuse, where another process is measuring, to wait for it.")]


@app.callback(invoke_without_command=True)
def dashboard(context: typer.Context) -> None:
    """See the KV cache work. Without a command: open the dashboard."""
    if context.invoked_subcommand is None:
        if not (ROOT / "app.py").is_file() or find_spec("streamlit") is None:
            raise KvvizError("the dashboard is not installed here; in a checkout of kvviz, `make run` opens it")
        os.chdir(ROOT)
        os.execv(sys.executable, [sys.executable, str(ROOT / "app.py")])  # signals reach the server itself


@app.command("models")
def models_command(as_json: AsJson = False) -> None:
    """List the models that kvviz knows by name."""
    rows = [
        {
            "id": row.id,
            "family": row.family,
            "title": row.title,
            "layers": ModelSpec.from_config(row.config).decoder_layers,
            "params": row.params,
            "weights": stored_weights(row.id),
            "source": row.source,
        }
        for row in catalog_models().values()
    ]
    rows += [_pulled_row(name) for name in beside_catalog()]
    _answer({"models": rows}, _models_text, as_json)


def _models_text(document: dict[str, Any]) -> str:
    lines = []
    for row in document["models"]:
        size = f"{row['layers'] or '?':>4} layers {row['params'] or 0:>16,} parameters"
        lines.append(f"{row['id']:<20}{row['title']:<34}{size}  {row['weights']}")
    return "\n".join(lines)


def _pulled_row(name: str) -> dict[str, Any]:
    """A model that was pulled and is in no catalog; one with a broken file is refused in a sentence when it is used."""
    try:
        source = find_source(name)
        told = {"family": source.config["model_type"], "layers": source.spec.decoder_layers, "params": source.params}
    except KvvizError:
        told = {"family": None, "layers": None, "params": None}
    return {"id": name, "title": name, "weights": "local", "source": f"https://huggingface.co/{name}", **told}


Tokens = Annotated[int, typer.Option(help="Tokens in the cache of each sequence.")]
Batch = Annotated[int, typer.Option(help="Sequences.")]
SourceTokens = Annotated[int | None, typer.Option(help="Length of an encoder's output; as --tokens if not given.")]
ModelArgument = Annotated[
    str, typer.Argument(help="Catalog id, folder, config.json, Hugging Face id, or - for a config on standard input.")
]


@app.command()
def calc(
    model: ModelArgument,
    tokens: Tokens = 1024,
    batch: Batch = 1,
    dtype: Annotated[str, typer.Option(help=f"Of the cache: {', '.join(PRECISIONS)}.")] = "bfloat16",
    weights_dtype: Annotated[str | None, typer.Option(help=f"Of the weights: {', '.join(WEIGHT_BITS)}.")] = None,
    view: Annotated[str, typer.Option(help=f"Whose bytes: {', '.join(VIEWS)}.")] = "architecture",
    tensor_parallel: Annotated[int, typer.Option(help="Devices that share the heads; the figures are each one's.")] = 1,
    beams: Annotated[int, typer.Option(help="Beams of each sequence.")] = 1,
    source_tokens: SourceTokens = None,
    as_json: AsJson = False,
) -> None:
    """Bytes of a model's KV cache by a closed form, layer by layer."""
    with ExitStack() as stack:
        source = _with_config(_model_argument(model, stack))
        memory = kv_memory(
            _spec(source),
            tokens,
            batch=batch,
            dtype=dtype,
            view=view,
            beams=beams,
            tensor_parallel=tensor_parallel,
            source_tokens=source_tokens,
            weights_bytes=_weights_bytes(source, weights_dtype, dtype, tensor_parallel),
        )
    _answer(memory, _memory_text, as_json)


def _with_config(model: str) -> Source:
    """MODEL as a source that knows its config; that of a Hugging Face id is fetched."""
    if model in catalog_models() or not looks_like_hub_id(model):
        return find_source(model)
    source = find_source(model, "hub")
    return replace(source, config=fetch_config(model))


def _spec(source: Source) -> ModelSpec:
    if source.spec is None:
        raise KvvizError(f"the config of {source.model} is not known before it is fetched; give its config.json")
    return source.spec


def _weights_bytes(source: Source, weights_dtype: str | None, dtype: str, devices: int) -> int | None:
    """Of the weights, in the cache's dtype where none is given and that one is a weights' dtype.

    None where the parameters aren't known, or how an engine shares them out over devices.
    """
    if weights_dtype is None:
        weights_dtype = dtype if dtype in WEIGHT_BITS else "bfloat16"
    size = weight_bytes(source.params or 0, weights_dtype)
    return size if source.params is not None and devices == 1 else None


@app.command()
def probe(
    model: ModelArgument,
    tokens: Tokens = 1024,
    batch: Batch = 1,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, float16.")] = "bfloat16",
    source_tokens: SourceTokens = None,
    as_json: AsJson = False,
) -> None:
    """The same bytes read off the model itself, built without weights on the meta device."""
    from kvviz.decoding.meta_probe import probe as ask

    with ExitStack() as stack:
        source = _with_config(_model_argument(model, stack))
        # the same sentences for bad numbers
        kv_memory(ModelSpec("", ()), tokens, batch=batch, dtype=dtype, view="hf-dynamic", source_tokens=source_tokens)
        memory = ask(
            source.config, tokens=tokens, batch=batch, dtype=dtype, name=source.model, source_tokens=source_tokens
        )
    _answer(memory, _memory_text, as_json)


def _memory_text(memory: Memory) -> str:
    each = f", each of {memory.tensor_parallel} devices" if memory.tensor_parallel > 1 else ""
    sequences = f" x {memory.batch}" + (f" x {memory.beams} beams" if memory.beams > 1 else "")
    what = f"{memory.model}, {memory.tokens:,} tokens{sequences}, {memory.dtype}, {memory.view}{each}"
    size = f"{memory.total_bytes:,} B ({human(memory.total_bytes)}), {memory.per_token_bytes:,} B a token more"
    reserved = f", {memory.reserved_bytes:,} B reserved" if memory.reserved_bytes != memory.total_bytes else ""
    return f"{what}: {size}{reserved}"


@app.command()
def cost(
    model: ModelArgument,
    tokens: Annotated[int, typer.Option(help="The context that the step makes, its own token included.")] = 1024,
    batch: Batch = 1,
    dtype: Annotated[str, typer.Option(help=f"Of weights and cache: {', '.join(WEIGHT_BITS)}.")] = "bfloat16",
    source_tokens: SourceTokens = None,
    as_json: AsJson = False,
) -> None:
    """FLOPs and bytes of one decode step, with the cache and without it."""
    with ExitStack() as stack:
        source = _with_config(_model_argument(model, stack))
        shape = read_shape(source.config or {}, name=source.model, source=source.origin)
        found = cost_document(shape, tokens, batch=batch, dtype=dtype, source_tokens=source_tokens)
    _answer(found, cost_text, as_json)


@app.command()
def run(
    model: Annotated[str, typer.Option(help="Catalog id, folder, config.json, Hugging Face id, or - for a config.")],
    weights: Annotated[str, typer.Option(help="auto, bundled, random, hub or local.")] = "auto",
    mode: Annotated[str, typer.Option(help="Modes, separated by commas.")] = "uncached,cached",
    prompt: Annotated[str | None, typer.Option(help="The prompt's text.")] = None,
    prompt_file: Annotated[Path | None, typer.Option(help="A file that holds the prompt.")] = None,
    prompt_tokens: Annotated[int | None, typer.Option(help="That many seeded random tokens as the prompt.")] = None,
    new_tokens: Annotated[int, typer.Option(help="Tokens to decode.")] = 64,
    batch: Annotated[int, typer.Option(help="Sequences decoded together.")] = 1,
    repeats: Annotated[int, typer.Option(help="Timed passes of each mode.")] = 3,
    warmup: Annotated[int, typer.Option(help="Untimed full passes before them; the first is the proof.")] = 1,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    attn: Annotated[str, typer.Option(help="sdpa (flash where the device has it) or eager.")] = "sdpa",
    seed: Annotated[int, typer.Option(help="Of random weights, random prompts and draws.")] = 0,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    top_k: Annotated[int | None, typer.Option(help="Draw from the k most likely tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the likeliest tokens that hold this share.")] = None,
    stop_at_eos: Annotated[bool, typer.Option("--stop-at-eos", help="End at the model's end token.")] = False,
    stop: Annotated[str, typer.Option(help="End when this text has been written.")] = "",
    pin: Annotated[bool, typer.Option("--pin", help="Keep the text as the expected one.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Status 1 where the text is not the expected one.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Also a file that `import` takes.")] = None,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Decode one piece of work in several modes, prove that they agree, time them; prints JSON."""
    with ExitStack() as stack:
        work = ComparisonSpec(
            model=_model_argument(model, stack),
            weights=weights,
            modes=tuple(name.strip() for name in mode.split(",")),
            prompt=_prompt(prompt, prompt_file, prompt_tokens),
            prompt_tokens=prompt_tokens,
            new_tokens=new_tokens,
            batch=batch,
            repeats=repeats,
            warmup=warmup,
            dtype=dtype,
            device=device,
            attn=attn,
            sampling=Sampling(temperature, top_k, top_p, seed),
            stop_at_eos=stop_at_eos,
            stop_text=stop,
        )
        _check_writable(output)
        expected = _expected(work, pin, check)
        done = _perform(work, patient=not no_wait)
        _print_json({**done.document, "verdict": verdict(done.document)})
        _hand_on(done, output)
        _pin_or_check(done.document, pin, expected)


@app.command("export", context_settings={"ignore_unknown_options": True})  # an id may begin with a dash
def export_command(
    comparison: Annotated[str, typer.Argument(help="The id of a kept comparison, or a file that `import` takes.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")],
    form: Annotated[str, typer.Option("--format", help="json, csv, parquet or html.")] = "json",
) -> None:
    """Write a comparison as a file; prints the file's name."""
    from kvviz.store.files import exchange, reading

    is_file = Path(comparison).is_file()
    found = reading.read(_bytes_of(comparison)) if is_file else exchange.kept(_store(), comparison)
    _write(output, exchange.written(found, form))
    typer.echo(output)


@app.command("import")
def import_command(
    file: Annotated[str, typer.Argument(help="JSON of `export`, `run` or a recording; - for standard input.")],
    as_json: AsJson = False,
) -> None:
    """Keep a comparison from elsewhere like one of this machine's; prints its new id."""
    from kvviz.store.files import exchange

    data = sys.stdin.buffer.read() if file == "-" else _bytes_of(file)
    comparison_id = exchange.take_in(_store(), data, title=Path(file).stem if file != "-" else "")
    _answer({"id": comparison_id}, lambda found: found["id"], as_json)


def _store() -> Any:
    """The store of runs, where the dashboard's packages are installed."""
    if find_spec("sqlalchemy") is None:
        raise KvvizError("the store of runs needs the dashboard's packages (sqlalchemy), which are not installed here")
    from kvviz.store.db.store import Store

    return Store()


def _bytes_of(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except (OSError, ValueError) as error:
        raise KvvizError(f"{file[:200]} can't be read ({type(error).__name__})") from error


def _check_writable(file: Path | None) -> None:
    """Before anything is measured. Raises KvvizError."""
    if file is not None and (file.is_dir() or not os.access(file.absolute().parent, os.W_OK)):
        raise KvvizError(f"{file} can't be written")


def _write(file: Path, data: bytes) -> None:
    try:
        file.write_bytes(data)
    except (OSError, ValueError) as error:
        raise KvvizError(f"{file} can't be written ({type(error).__name__})") from error


def _hand_on(done: Any, output: Path | None) -> None:
    """Write a measured comparison where it was asked for, and keep it where there is a store.

    A store that fails is a sentence on standard error: the comparison itself has been printed.
    """
    from kvviz.store.files import exchange

    if output is not None:
        _write(output, exchange.written(done, "json"))
    if find_spec("sqlalchemy") is not None:
        try:
            exchange.keep(_store(), done, origin="run")
        except KvvizError as error:
            typer.echo(f"kvviz: this run was not kept: {error}", err=True)


def _pins() -> Any:
    """What keeps expected texts: the store, else files."""
    from kvviz.experiments.comparison.pins import PinFiles

    return PinFiles() if find_spec("sqlalchemy") is None else _store()


def _expected(work: ComparisonSpec, pin: bool, check: bool) -> dict[str, Any] | None:
    """What `--check` will compare with, looked up before anything is measured; so is where `--pin` will keep it."""
    if pin and check:
        raise KvvizError("give one of --pin and --check")
    if not (pin or check):
        return None
    from kvviz.experiments.comparison.pins import key_of

    found = _pins().pinned(key_of(work))
    if pin:
        return None
    if found is None:
        raise KvvizError("no text is pinned for this model, prompt and settings; `run --pin` with the same pins one")
    return found


def _pin_or_check(document: dict[str, Any], pin: bool, expected: dict[str, Any] | None) -> None:
    """Keep the text as the expected one, or end with status 1 where it is not the expected one."""
    from kvviz.experiments.comparison.pins import compare_expected, expected_of, key_of

    if pin:
        _pins().pin(key_of(document), expected_of(document))
    if expected is not None:
        check = compare_expected(expected, document)
        typer.echo(f"kvviz: {check.sentence}", err=True)
        if not check.same:
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


def _model_argument(model: str, stack: ExitStack) -> str:
    """MODEL as given; `-` is a config on standard input, kept in a file for as long as the command runs."""
    if model != "-":
        return model
    path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "config.json"
    path.write_text(sys.stdin.read(), encoding="utf-8")
    return str(path)


def _perform(work: ComparisonSpec, patient: bool = True) -> Any:
    """Measure in this process, on the cores that a dashboard's worker would have; gives an `Imported`."""
    settle()

    from tqdm import tqdm

    from kvviz.base.errors import Stopped
    from kvviz.base.shutdown import told_to_stop
    from kvviz.decoding.loaded_models import LoadedModels
    from kvviz.decoding.modes import mode_named
    from kvviz.experiments.comparison.run import perform

    for name in work.modes:
        mode_named(name)
    steps = len(work.modes) * work.new_tokens * (work.warmup + work.repeats)
    records: list[dict[str, Any]] = []
    bar, run_id = None, new_id()
    with alone("kvviz run", patient):
        loaded = LoadedModels().get(work)
        with told_to_stop() as told:
            try:
                for record in perform(work, loaded, comparison_id=run_id, should_stop=lambda: bool(told)):
                    bar = bar or tqdm(total=steps, unit="step", file=sys.stderr, leave=False)  # it is accepted now
                    bar.update(len(record["modes"]) if record["t"] == "proof" else len(record.get("s", ())))
                    records.append(record)
            except Stopped:
                bar.close()
                raise Halted(told[0], _keep_part(run_id, work, records)) from None
    bar.close()
    return _finished(records)


def _keep_part(run_id: str, work: ComparisonSpec, records: list[dict[str, Any]]) -> str:
    """Keep what a run had measured when it was stopped, where there is a store; what was done in a sentence."""
    if find_spec("sqlalchemy") is None:
        return "the run was stopped; nothing of it is kept"
    message = "it was stopped on the command line; what it had measured until then is kept"
    try:
        store = _store()
        store.begin(run_id, work.to_dict(), origin="run")
        store.append(run_id, [json.dumps(record) for record in [*records, {"t": "stopped", "message": message}]])
        store.finish(run_id, "stopped", message=message)
    except KvvizError as error:
        return f"the run was stopped; it was not kept: {error}"
    return f"the run was stopped; what it had measured is kept as {run_id}"


def _finished(records: list[dict[str, Any]]) -> Any:
    """A comparison's records as the dashboard keeps them: the document beside them, its figures among them."""
    from kvviz.experiments.comparison.report import headline
    from kvviz.store.files.reading import Imported

    document = records.pop()["document"]
    return Imported(document, [*records, {"t": "figures", "runs": headline(document)}, {"t": "done", "message": ""}])


@app.command()
def sweep(
    model: Annotated[str | None, typer.Option(help="One model or several, separated by commas.")] = None,
    preset: Annotated[str, typer.Option(help=f"A grid by name: {', '.join(PRESETS)}.")] = "",
    weights: Annotated[str | None, typer.Option(help="auto, bundled, random, hub or local.")] = None,
    mode: Annotated[str | None, typer.Option(help="Modes, separated by commas.")] = None,
    prompt_tokens: Annotated[str | None, typer.Option(help="Lengths of the prompt, such as 64,128,256.")] = None,
    new_tokens: Annotated[str | None, typer.Option(help="Tokens to decode, such as 8,32,128.")] = None,
    batch: Annotated[str | None, typer.Option(help="Sequences decoded together, such as 1,2,4.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16, float16, separated by commas.")] = None,
    repeats: Annotated[int | None, typer.Option(help="Timed passes of each mode in each cell.")] = None,
    budget: Annotated[
        float | None, typer.Option(help="Seconds: repeats, then cells are left out to keep to it.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps.")] = None,
    attn: Annotated[str | None, typer.Option(help="sdpa (flash where the device has it) or eager.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of random weights and of the random prompts.")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Keep a journal in this file; go on from it if it is there.")
    ] = None,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Decode over a grid of lengths, batches and models, without and with the cache: a table."""
    with ExitStack() as stack:
        given = {
            "models": _names(model and _model_argument(model, stack)),
            "weights": weights,
            "modes": _names(mode),
            "prompt_tokens": _counts("--prompt-tokens", prompt_tokens),
            "new_tokens": _counts("--new-tokens", new_tokens),
            "batches": _counts("--batch", batch),
            "dtypes": _names(dtype),
            "repeats": repeats,
            "budget_s": budget,
            "device": device,
            "attn": attn,
            "seed": seed,
        }
        done = open_journal(resume)
        patient = not no_wait
        document = carry_out(asked_for(preset, given, done, patient), done, resume, patient)
    _answer(document, sweep_text, as_json)


@app.command()
def ceilings(
    refresh: Annotated[bool, typer.Option("--refresh", help="Measure again, whatever is kept.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """How fast this device reads, multiplies and starts an operation: measured once, then kept."""
    found = ceilings_here(device, refresh=refresh, patient=not no_wait)
    _answer(found, ceilings_text, as_json)


@app.command()
def roofline(
    model: ModelArgument,
    weights: Annotated[str, typer.Option(help="auto, bundled, random, hub or local.")] = "auto",
    tokens: Annotated[int, typer.Option(help="The longest prompt and context; shorter ones are measured too.")] = 512,
    batch: Annotated[int, typer.Option(help="The most sequences decoded together; fewer are measured too.")] = 16,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Prefills and decode steps on this device's measured roofline, and where a step's time goes."""
    with ExitStack() as stack:
        spec = RoofSpec(_model_argument(model, stack), weights, tokens, batch, dtype, device)
        with bench_here("kvviz roofline", "the roofline was stopped; nothing of it is kept", not no_wait) as bench:
            found = document_here(spec, bench, _say_point)
    _answer(found, roofline_text, as_json)


def _say_point(record: dict[str, Any]) -> None:
    if record["t"] == "point":
        where = f"{record['phase']} at {record['tokens']:,} tokens x {record['batch']}"
        say(f"{record['done']} of {record['of']}, {where}: {millis(record['s'])}")


@app.command()
def serving(
    model: Annotated[str | None, typer.Argument(help="For prompts that share; without one, memory alone.")] = None,
    weights: Annotated[str, typer.Option(help="auto, bundled, random, hub or local.")] = "auto",
    requests: Annotated[int, typer.Option(help="Sequences that come.")] = 80,
    rate: Annotated[float, typer.Option(help="Of them a tick, on average.")] = 1.0,
    slots: Annotated[int, typer.Option(help="Tokens that the memory has room for.")] = 2048,
    longest: Annotated[int, typer.Option(help="Tokens that a sequence has at most.")] = 256,
    seed: Annotated[int, typer.Option(help="Of the requests.")] = 0,
    share: Annotated[int, typer.Option(help="Requests that share a system prompt.")] = 4,
    system: Annotated[str, typer.Option(help="The system prompt.")] = SYSTEM,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Many sequences in one memory, given out four ways; with a model, what a shared prompt and a kept history save."""
    looks: dict[str, Spec] = {"fragmentation": ArrivalsSpec(requests, rate, slots, longest, seed)}
    if not 2 <= share <= MOST_ASKS:
        raise KvvizError(f"--share is {share}; it is a whole number from 2 to {MOST_ASKS}")
    if model is not None:
        looks["sharing"] = SharingSpec(model, system, ASKS[:share], weights)
        looks["conversation"] = TalkSpec(model, FIRST, SECOND, EDITED, weights)
    with bench_here("kvviz serving", "serving was stopped; nothing of it is kept", not no_wait) as bench:
        found = {name: document_here(spec, bench, _say_way) for name, spec in looks.items()}
    _answer(found, serving_text, as_json)


def _say_way(record: dict[str, Any]) -> None:
    if record["t"] == "way":
        say(f"{record['done']} of {record['of']}, {record['title']}")


@app.command()
def caches(
    model: ModelArgument,
    designs: Annotated[str, typer.Option(help="Cache designs, separated by commas.")] = ",".join(RACED),
    weights: Annotated[str, typer.Option(help="auto, bundled, random, hub or local.")] = "auto",
    prompt: Annotated[str, typer.Option(help="The text that all sequences share.")] = STORY,
    new_tokens: Annotated[int, typer.Option(help="Tokens that each sequence writes, 2 to 192.")] = 64,
    batch: Annotated[int, typer.Option(help="Sequences decoded together.")] = 2,
    repeats: Annotated[int, typer.Option(help="Timed passes of each design.")] = 3,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """The same prompt through cache designs: their tokens, quality, memory, copies and time."""
    with ExitStack() as stack:
        spec = CachesSpec(
            _model_argument(model, stack), _names(designs), weights, prompt, new_tokens, batch, repeats, dtype, device
        )
        begun: set[str] = set()

        def tell(record: dict[str, Any]) -> None:
            if record["t"] == "part" and record["part"] not in begun:
                begun.add(record["part"])
                say(f"now {record['words']}")

        with bench_here("kvviz caches", "the caches were stopped; nothing of them is kept", not no_wait) as bench:
            found = document_here(spec, bench, tell)
    _answer(found, caches_text, as_json)


app.command("pull")(classroom.pull)
app.command("ready")(classroom.ready)


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(","))


def _counts(option: str, text: str | None) -> tuple[int, ...] | None:
    try:
        return None if text is None else tuple(int(count) for count in text.split(","))
    except ValueError as error:
        raise KvvizError(f"{option} is {text[:80]!r}; it is whole numbers, separated by commas") from error


def _answer(found: Any, text: Callable[[Any], str], as_json: bool) -> None:
    """Print what was found: its document (`found`, or what its `to_dict` gives) as JSON, else its text."""
    if as_json:
        _print_json(found if isinstance(found, dict) else found.to_dict())
    else:
        typer.echo(text(found))


def _print_json(document: dict[str, Any]) -> None:
    typer.echo(json.dumps(document, allow_nan=False))


def main() -> None:
    """Run the command line: a KvvizError is one line on standard error and exit status 2."""
    try:
        status = app(standalone_mode=False)
    except KvvizError as error:
        _refuse(str(error))
    except UsageError as error:
        _refuse(error.format_message())
    except Halted as halted:
        print(f"kvviz: {halted}", file=sys.stderr)
        raise SystemExit(halted.status) from None
    except (typer.Abort, KeyboardInterrupt):
        raise SystemExit(130) from None
    raise SystemExit(status if isinstance(status, int) else 0)


def _refuse(sentence: str) -> None:
    print(f"kvviz: {' '.join(sentence.split())}", file=sys.stderr)
    raise SystemExit(2)
