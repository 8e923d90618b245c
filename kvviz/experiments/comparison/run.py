"""Runs one comparison as a generator of plain records; `kvviz.experiments.comparison` says in which order, and why."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, replace
from typing import cast

import torch

from kvviz.base.errors import KvvizError
from kvviz.base.records import SPLIT
from kvviz.cost.flops import estimated
from kvviz.cost.predict import Paces, predict
from kvviz.decoding.loading import Loaded
from kvviz.decoding.loop import check_context
from kvviz.decoding.measure_paces import knows_paces, paces_of
from kvviz.decoding.modes import Mode, check_modes, mode_named
from kvviz.decoding.read_cache import tracing_seconds
from kvviz.device.clock import interleaved, no_collection
from kvviz.device.disturbance import Watch
from kvviz.device.remembered import doubt_figures
from kvviz.experiments.comparison import records as form
from kvviz.experiments.comparison.comparison_run import ComparisonRun, TimedPasses, encode_prompt, started
from kvviz.experiments.comparison.enough import MOST, why_stop
from kvviz.experiments.comparison.equivalence import check_equivalence
from kvviz.experiments.comparison.memory_account import account_memory
from kvviz.experiments.comparison.records import Clocked, Pass, Predicted, Record, Result, Times
from kvviz.experiments.comparison.report import comparison_document
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.comparison.speculation_parts import clock_parts
from kvviz.experiments.kind import Bench
from kvviz.experiments.limits import check_prompt
from kvviz.models.sources import usual_draft
from kvviz.models.text import book

MISSED = 0.15  # a prediction that is further off an undisturbed measurement casts doubt on its paces
SEND_EVERY = 0.1  # seconds between two records of times; a screen needs no more


def run(spec: ComparisonSpec, bench: Bench) -> Iterator[Record | Result]:
    """Load the model and yield the records of a comparison."""
    loaded = bench.load(spec, may_split=True)
    if spec.prompt is not None:
        check_prompt(len(loaded.codec.encode(spec.prompt)), bench.limits.prompt_tokens)
    draft = load_draft(spec, loaded, bench.load)
    yield from perform(
        spec,
        loaded,
        comparison_id=bench.id,
        should_stop=bench.should_stop,
        watched=bench.watched,
        draft=draft,
        key=bench.key,
    )


def load_draft(spec: ComparisonSpec, loaded: Loaded, load: Callable[[ComparisonSpec], Loaded]) -> Loaded | None:
    """Load the model that drafts, if a mode needs one. Raises KvvizError for one with another tokenizer."""
    if not any(mode_named(name).drafts for name in spec.modes):
        return None
    name = spec.draft or usual_draft(spec.model)
    draft = load(replace(spec, model=name, modes=("compiled",), weights="auto"))
    length = spec.prompt_tokens or len(draft.codec.encode(spec.prompt or ""))
    check_context(draft.spec.context, length, spec.new_tokens)
    one, other, text = loaded.codec, draft.codec, book()[:5000]
    alike = type(one) is type(other) and loaded.spec.vocab_size == draft.spec.vocab_size
    if not (alike and one.encode(text) == other.encode(text)):
        raise KvvizError(f"{name} can't draft for {spec.model}: they do not have the same tokenizer")
    return draft


def perform(
    work: ComparisonSpec,
    loaded: Loaded,
    *,
    comparison_id: str,
    should_stop: Callable[[], bool] = lambda: False,
    watched: bool = False,
    draft: Loaded | None = None,
    key: str | None = None,
) -> Iterator[Record | Result]:
    """Yield the records of a comparison. Raises KvvizError for work the model can't do, Stopped if asked to stop."""
    run = ComparisonRun(work, loaded, encode_prompt(work, loaded), should_stop, draft, key)
    with closing(run):
        yield from _perform(run, comparison_id, watched)


def _perform(run: ComparisonRun, comparison_id: str, watched: bool) -> Iterator[Record | Result]:
    work, loaded, begun = run.work, run.loaded, time.monotonic()
    check_context(loaded.spec.context, run.prompt_tokens, work.new_tokens)
    check_modes(work.modes, loaded.source.config, SPLIT if loaded.is_split else loaded.device)
    modes = [_described(mode, work.sampling.temperature) for mode in map(run.mode, work.modes)]
    yield {"id": comparison_id, **started(loaded, cast(form.SpecFields, work.to_dict()), run.prompt[0].tolist(), modes)}
    measured, predicted = None, None
    parts = [check_equivalence, account_memory, timed_passes]
    begins = (
        parts[1] if watched and not knows_paces(loaded) else parts[0]
    )  # with the prediction: no look waits for paces
    for part in parts:
        if part is begins and not loaded.is_split:
            measured = paces_of(loaded)
            predicted = _predicted(run, *measured)
            run.check_stop()
            if predicted is not None:
                yield predicted
        for record in part(run):
            if watched or record["t"] != "first_look":
                yield cast(Record, {**record, "at": round(time.monotonic() - begun, 3)})
    clock_parts(run)
    document = comparison_document(comparison_id, run, measured, predicted)
    clean = [row for row in document["runs"] if row["passes"] and row["passes"]["clean"]]
    if any((row["prediction_error"] or 0) > MISSED for row in clean):
        doubt_figures(time.time() - (time.monotonic() - begun))
    yield {"t": "done", "document": document}


def _described(mode: Mode, temperature: float) -> form.ModeFields:
    exact = mode.exactly(temperature)
    fields: form.ModeFields = {"name": mode.name, "title": mode.title, "summary": mode.summary, "exact": exact}
    return {**fields, "speculates": True} if mode.speculates else fields


def _predicted(run: ComparisonRun, paces: Paces, operations: int) -> Predicted | None:
    """Predict the seconds of each mode that the cost model knows; return None for a model that it does not cover."""
    loaded, work = run.loaded, run.work
    shape = estimated(loaded.source.config)
    works = {name: mode_named(name).work for name in work.modes if mode_named(name).work}
    if shape is None or not works:
        return None
    size = {"prompt_tokens": run.prompt_tokens, "new_tokens": work.new_tokens, "batch": work.batch}
    try:
        curves = predict(shape, paces, works, operations=operations, **size, queues=loaded.device != "cpu")
    except KvvizError:
        return None
    tracing = operations * tracing_seconds(loaded.device)
    return {"t": "predicted", "paces": paces.to_dict(), "step_s": curves, "tracing_s": float(f"{tracing:.3g}")}


def timed_passes(run: ComparisonRun) -> Iterator[Pass | Times | Clocked]:
    """Run the remaining warm-ups, then the repeats, with the modes interleaved, until they are enough.

    Fills `run.passes` and `run.stopped_because`. The equivalence check counts as the first warm-up. Warm-ups yield
    records, but no figure is made of their times.
    """
    work = run.work
    run.passes = {mode: TimedPasses() for mode in work.modes}
    for number, mode in interleaved(work.modes, work.warmup - 1 + MOST):
        repeat = number - (work.warmup - 1)
        yield {"t": "pass", "mode": mode, "repeat": repeat}
        with no_collection():
            yield from timed_pass(run, mode, repeat)
        if all(len(passes.repeats) > repeat for passes in run.passes.values()):
            run.stopped_because = why_stop(run)
            if run.stopped_because:
                return


def timed_pass(run: ComparisonRun, mode: str, repeat: int) -> Iterator[Times | Clocked]:
    """Time one pass of as many steps as the equivalence check took. Yields records of times, and what disturbed it."""
    tokens, passes = run.checked[mode].tokens, run.passes[mode]
    seconds: list[float] = []
    chosen: list[torch.Tensor] = []
    sent, last, watch = 0, time.monotonic(), Watch()
    for step in run.clocked(mode, steps=len(tokens)):
        seconds.append(step.seconds)
        chosen.append(step.step.token_ids)
        watch.beat()
        run.check_stop()
        if time.monotonic() - last >= SEND_EVERY:
            yield _times(mode, repeat, sent, seconds)
            sent, last = len(seconds), time.monotonic()
    found = watch.read()
    passes.repeatable &= [ids.tolist() for ids in chosen] == tokens
    if sent < len(seconds):
        yield _times(mode, repeat, sent, seconds)
    if repeat >= 0:
        for number in passes.add(seconds, found):
            known = passes.disturbances[number]
            yield cast(Clocked, {"t": "clocked", "mode": mode, "repeat": number, "clean": known.clean, **asdict(known)})


def _times(mode: str, repeat: int, sent: int, seconds: list[float]) -> Times:
    return {"t": "times", "mode": mode, "repeat": repeat, "from": sent, "s": [round(s, 9) for s in seconds[sent:]]}
