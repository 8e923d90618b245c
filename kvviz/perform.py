"""Carrying out one comparison: a generator of plain records, for the live feed and for the command line alike.

First the proof: all modes step in lockstep, untimed; tokens, text and cache states come from here. Then the
timed passes, interleaved. Every record is a dict of JSON values; the last one holds the whole comparison.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from kvviz.decode import check_context, chooser, decode
from kvviz.device import environment
from kvviz.errors import KvvizError
from kvviz.measure import interleaved, no_collection, synchroniser, timed
from kvviz.models import Loaded
from kvviz.modes import mode_named
from kvviz.records import ComparisonSpec, LayerState
from kvviz.report import comparison_document, reference_mode
from kvviz.snapshot import Outliving, snapshot
from kvviz.text import TextStream

SEND_EVERY = 0.1  # seconds of measuring between two records of times: a screen needs no more


class Stopped(Exception):
    """The viewer asked to stop."""


@dataclass
class ModeTrace:
    """What is known of one mode so far. `tokens` has one row per step: the ids of the batch."""

    tokens: list[list[int]] = field(default_factory=list)
    added: str = ""
    layers: list[tuple[LayerState, ...]] = field(default_factory=list)
    cache_class: str | None = None
    outliving: list[int] = field(default_factory=list)
    max_delta: float | None = None
    divergence: int | None = None
    margin: float | None = None
    repeats: list[list[float]] = field(default_factory=list)
    repeatable: bool = True
    peak: int | None = None


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
    traces = {name: ModeTrace() for name in work.modes}
    env = environment(loaded.model, loaded.device, loaded.dtype)
    yield _started(work, loaded, comparison_id, prompt, asdict(env))
    for part in (_prove, _measure):
        for record in part(work, loaded, prompt, traces, should_stop):
            yield {**record, "at": round(time.monotonic() - started, 3)}
    yield {
        "t": "done",
        "document": comparison_document(comparison_id, work, loaded, env, prompt.shape[1], traces),
    }


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
        },
        "modes": [
            {"name": m.name, "title": m.title, "summary": m.summary, "exact": m.exact}
            for m in map(mode_named, work.modes)
        ],
    }


def _loop(work: ComparisonSpec, loaded: Loaded, prompt: torch.Tensor, mode: str) -> Iterator[Any]:
    stop_ids = loaded.stop_ids if work.stop_at_eos else frozenset()
    choose = chooser(work.sampling)
    return decode(loaded.model, prompt, mode=mode, new_tokens=work.new_tokens, choose=choose, stop_ids=stop_ids)


# --- the proof ---------------------------------------------------------------------------------------------


def _prove(
    work: ComparisonSpec,
    loaded: Loaded,
    prompt: torch.Tensor,
    traces: dict[str, ModeTrace],
    should_stop: Callable[[], bool],
) -> Iterator[dict[str, Any]]:
    """Step all modes in lockstep, untimed, and compare them at every step."""
    reference = reference_mode(work.modes)
    loops = {name: _loop(work, loaded, prompt, name) for name in sorted(work.modes, key=lambda m: m != reference)}
    streams = {name: TextStream(loaded.codec) for name in work.modes}
    kinds = tuple(layer.kind for layer in loaded.spec.layers)
    for index in range(work.new_tokens):
        steps: dict[str, Any] = {}
        for name, loop in loops.items():
            if should_stop():
                raise Stopped
            with Outliving() as made:
                step = next(loop, None)
            if step is not None:
                steps[name] = step
                kept = made.survivors(step.logits, *loaded.tensors)
                _note(traces[name], step, kinds, kept, streams[name])
        if not steps:
            return
        for name in steps:
            if reference in steps:
                _compare(traces[name], traces[reference], steps[name], steps[reference])
        yield {"t": "proof", "i": index, "modes": {name: _proof_row(traces[name], loaded) for name in steps}}


def _note(trace: ModeTrace, step: Any, kinds: tuple[str, ...], outliving: int, stream: TextStream) -> None:
    trace.tokens.append(step.token_ids.tolist())
    trace.added = stream.push(trace.tokens[-1][0])
    trace.layers.append(snapshot(step.cache, kinds))
    trace.cache_class = type(step.cache).__name__ if step.cache is not None else None
    trace.outliving.append(outliving)


def _compare(trace: ModeTrace, reference: ModeTrace, step: Any, other: Any) -> None:
    """Keep the largest |logit difference| up to and including the first divergence, and where that is."""
    if trace.divergence is not None:
        return
    delta = (step.logits.float() - other.logits.float()).abs().max().item()
    if not math.isfinite(delta):
        raise KvvizError(
            f"the logits of step {step.index} are not finite: these weights overflow in {step.logits.dtype}; "
            "take float32 or bfloat16"
        )
    trace.max_delta = max(trace.max_delta or 0.0, delta)
    if trace.tokens[-1] != reference.tokens[-1]:
        trace.divergence = step.index
        best = other.logits.float().topk(2, dim=-1).values
        trace.margin = (best[:, 0] - best[:, 1]).min().item()


def _proof_row(trace: ModeTrace, loaded: Loaded) -> dict[str, Any]:
    rows = trace.layers[-1]
    piece = loaded.codec.decode([trace.tokens[-1][0]])
    return {
        "ids": trace.tokens[-1],
        "text": trace.added,
        **({} if piece == trace.added else {"piece": piece}),
        "layers": grouped(rows),
        "outliving": trace.outliving[-1],
        "delta": trace.max_delta,
        "divergence": trace.divergence,
    }


def grouped(rows: tuple[LayerState, ...]) -> list[list[Any]]:
    """Layers in the same state share one entry: [indices, kind, K shape, V shape, dtype, seen, held, nbytes,

    allocated]. A model of a hundred like layers takes one.
    """
    groups: dict[tuple, list[int]] = {}
    for row in rows:
        state = (
            row.kind,
            row.key_shape,
            row.value_shape,
            row.dtype,
            row.seen,
            row.held,
            row.nbytes,
            row.allocated,
        )
        groups.setdefault(state, []).append(row.index)
    return [[indices, *map(_plain, state)] for state, indices in groups.items()]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


# --- the clock ---------------------------------------------------------------------------------------------


def _measure(
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
    on_cuda = loaded.device.startswith("cuda")
    if on_cuda:
        torch.cuda.reset_peak_memory_stats(loaded.device)
    sent, last = 0, time.monotonic()
    for step in timed(_loop(work, loaded, prompt, mode), synchroniser(loaded.device)):
        seconds.append(step.seconds)
        chosen.append(step.step.token_ids)
        if should_stop():
            raise Stopped
        if time.monotonic() - last >= SEND_EVERY:
            yield _times(mode, repeat, sent, seconds)
            sent, last = len(seconds), time.monotonic()
    if on_cuda and repeat >= 0:
        trace.peak = max(trace.peak or 0, torch.cuda.max_memory_allocated(loaded.device))
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
