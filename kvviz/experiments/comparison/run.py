"""Carrying out one comparison: a generator of plain records, for the live feed and for the command line alike.

First the proof, then the allocator's account of each mode, then the timed passes, interleaved. Every record is a
dict of JSON values; the last one holds the whole comparison.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import torch

from kvviz.base.errors import KvvizError, Stopped
from kvviz.base.hashing import config_hash
from kvviz.cost.flops import estimated
from kvviz.cost.predict import Paces, predict
from kvviz.decoding.loading import Loaded
from kvviz.decoding.loop import check_context
from kvviz.decoding.measure_paces import paces_of
from kvviz.decoding.modes import check_modes, mode_named
from kvviz.device.clock import interleaved, no_collection, synchroniser, timed
from kvviz.device.environment import environment
from kvviz.experiments.comparison.equivalence import ModeTrace, account_memory, loop, prove
from kvviz.experiments.comparison.report import comparison_document
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.kind import Bench, Record
from kvviz.experiments.limits import check_prompt

SEND_EVERY = 0.1  # seconds of measuring between two records of times: a screen needs no more


def run(spec: ComparisonSpec, bench: Bench) -> Iterator[Record]:
    """The records of a comparison, its model loaded first."""
    loaded = bench.load(spec)
    if spec.prompt is not None:
        check_prompt(len(loaded.codec.encode(spec.prompt)), bench.limits.prompt_tokens)
    yield from perform(spec, loaded, comparison_id=bench.id, should_stop=bench.should_stop)


def perform(
    work: ComparisonSpec,
    loaded: Loaded,
    *,
    comparison_id: str,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[dict[str, Any]]:
    """Yield the records of a comparison. Raises KvvizError for work the model can't do, Stopped when told to."""
    started = time.monotonic()
    prompt = encode_prompt(work, loaded)
    check_context(loaded.spec.context, prompt.shape[1], work.new_tokens)
    check_modes(work.modes, loaded.source.config, loaded.device)
    traces = {name: ModeTrace() for name in work.modes}
    env = environment(loaded.model, loaded.device, loaded.dtype)
    yield _started(work, loaded, comparison_id, prompt, asdict(env))
    paces, operations = paces_of(loaded)  # before any step of the model is made
    predicted = predicted_curves(work, loaded, prompt.shape[1], paces, operations)
    if should_stop():
        raise Stopped
    if predicted is not None:
        yield {"t": "predicted", **predicted}
    for part in (prove, account_memory, measure):
        for record in part(work, loaded, prompt, traces, should_stop):
            yield {**record, "at": round(time.monotonic() - started, 3)}
    yield {
        "t": "done",
        "document": comparison_document(
            comparison_id, work, loaded, env, prompt.shape[1], traces, paces.rates, predicted
        ),
    }


def predicted_curves(
    work: ComparisonSpec, loaded: Loaded, prompt_tokens: int, paces: Paces, operations: int
) -> dict[str, Any] | None:
    """What the cost model expects of each mode that it knows, as JSON; None for a model that can't be counted."""
    shape = estimated(loaded.source.config)
    works = {name: mode_named(name).work for name in work.modes if mode_named(name).work}
    if shape is None or not works:
        return None
    size = {"prompt_tokens": prompt_tokens, "new_tokens": work.new_tokens, "batch": work.batch}
    try:
        return predict(shape, paces, works, operations=operations, **size, queues=loaded.device != "cpu").to_dict()
    except KvvizError:
        return None


def encode_prompt(work: ComparisonSpec, loaded: Loaded) -> torch.Tensor:
    """The prompt as ids (B, T): the text's tokens in every row, or seeded random tokens, a row each."""
    if work.prompt is not None:
        ids = torch.tensor([loaded.codec.encode(work.prompt)] * work.batch)
    else:
        generator = torch.Generator().manual_seed(work.sampling.seed)
        ids = torch.randint(loaded.spec.vocab_size, (work.batch, work.prompt_tokens), generator=generator)
    return ids.to(loaded.device)


def _started(
    work: ComparisonSpec, loaded: Loaded, comparison_id: str, prompt: torch.Tensor, env: dict[str, Any]
) -> dict[str, Any]:
    ids = prompt[0].tolist()
    return {
        "t": "started",
        "id": comparison_id,
        "spec": work.to_dict(),
        "environment": env,
        "config_hash": config_hash(loaded.source.config) if loaded.source.config else None,
        "model": {
            "id": loaded.source.model,
            "title": loaded.source.title,
            "weights": loaded.source.weights,
            "params": loaded.params,
            "layers": len(loaded.spec.layers),
            "context": loaded.spec.context,
            "note": loaded.codec.note,
        },
        "prompt": {
            "tokens": len(ids),
            "text": work.prompt if work.prompt is not None else loaded.codec.decode(ids),
            "pieces": [loaded.codec.decode([i]) for i in ids],
        },
        "modes": [
            {"name": m.name, "title": m.title, "summary": m.summary, "exact": m.exact}
            for m in map(mode_named, work.modes)
        ],
    }


def measure(
    work: ComparisonSpec,
    loaded: Loaded,
    prompt: torch.Tensor,
    traces: dict[str, ModeTrace],
    should_stop: Callable[[], bool],
) -> Iterator[dict[str, Any]]:
    """The timed passes: further warm-ups first (counted, not kept), then the repeats, interleaved."""
    passes = work.warmup - 1 + work.repeats
    for number, mode in interleaved(work.modes, passes):
        repeat = number - (work.warmup - 1)
        yield {"t": "pass", "mode": mode, "repeat": repeat}
        with no_collection():
            seconds = yield from timed_pass(work, loaded, prompt, traces[mode], mode, repeat, should_stop)
        if repeat >= 0:
            traces[mode].repeats.append(seconds)


def timed_pass(
    work: ComparisonSpec,
    loaded: Loaded,
    prompt: torch.Tensor,
    trace: ModeTrace,
    mode: str,
    repeat: int,
    should_stop: Callable[[], bool],
) -> Iterator[Any]:
    """One pass under the clock. Yields records of times; returns the seconds of each step."""
    seconds: list[float] = []
    chosen: list[torch.Tensor] = []
    sent, last = 0, time.monotonic()
    capacity = prompt.shape[1] + work.new_tokens  # as in the proof, which may have ended earlier than asked for
    for step in timed(loop(work, loaded, prompt, mode, len(trace.tokens), capacity), synchroniser(loaded.device)):
        seconds.append(step.seconds)
        chosen.append(step.step.token_ids)
        if should_stop():
            raise Stopped
        if time.monotonic() - last >= SEND_EVERY:
            yield _times(mode, repeat, sent, seconds)
            sent, last = len(seconds), time.monotonic()
    trace.repeatable &= [ids.tolist() for ids in chosen] == trace.tokens
    if sent < len(seconds):
        yield _times(mode, repeat, sent, seconds)
    return seconds


def _times(mode: str, repeat: int, sent: int, seconds: list[float]) -> dict[str, Any]:
    return {
        "t": "times",
        "mode": mode,
        "repeat": repeat,
        "from": sent,
        "s": [round(s, 9) for s in seconds[sent:]],
    }
