"""Measures a roofline: times prefills, decode steps and batches, and profiles where a step's time goes."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Any

import torch

from kvviz.base.errors import KvvizError
from kvviz.cost import roofline as cost
from kvviz.cost.ceilings import Ceilings
from kvviz.cost.roofline import DECODE, PREFILL, WARMUP, Place, Point
from kvviz.decoding.compiled.forward import CompiledForward
from kvviz.decoding.loading import Loaded
from kvviz.decoding.loop import check_context, decode, greedy
from kvviz.decoding.modes import mode_named
from kvviz.device.clock import Sync, median_call, no_collection, quartiles, synchroniser, timed
from kvviz.device.measure_ceilings import known_ceilings, measure_ceilings, near_read_rate
from kvviz.device.memory import last_level_cache
from kvviz.device.profiler import as_one_call, profile
from kvviz.experiments.comparison.comparison_run import encode_prompt, look
from kvviz.experiments.kind import Bench, Record
from kvviz.experiments.roofline.spec import REACH, RoofSpec, places
from kvviz.experiments.roofline.words import sentences, together

log = logging.getLogger("kvviz.experiments.roofline.run")

PROFILED, FEW, BUDGET = 9, 3, 3.0  # profiled forwards of a kind, at most and at least, and the seconds for all
UNCACHED, COMPILED = "uncached step", "compiled step"
SETTLE = 5  # calls before those that are timed without the profiler: the first find nothing in the chip's cache


def run(spec: RoofSpec, bench: Bench) -> Iterator[Record]:
    """Yield the records: the environment, the ceilings, one point per forward, the profiles and the whole document.

    Raises KvvizError for a model whose work can't be counted or whose context is too short, Stopped when `should_stop`
    says so.
    """
    loaded = bench.load(spec.work())
    shape = cost.countable(loaded.source.config, loaded.source.model)
    check_context(loaded.spec.context, spec.tokens, REACH)
    yield look(spec, loaded)
    ceilings = _ceilings(loaded.device)
    roof, row = cost.roof_of(ceilings, loaded.dtype), cost.row_roof(ceilings, loaded.dtype)
    yield {"t": "roof", **asdict(roof)}
    prompt, points = encode_prompt(spec.work(), loaded)[:1], []
    every = places(spec)
    for number, place in enumerate(every, 1):
        count = cost.repeats(place, roof.least(cost.work_of(shape, place, loaded.dtype)))
        with no_collection():
            seconds = _measured(loaded, place, prompt, count, bench)
        points.append(cost.point(shape, place, loaded.dtype, quartiles(seconds), count))
        yield {"t": "point", "done": number, "of": len(every), **points[-1]}
    profiles = []
    for record in _profiles(spec, loaded, prompt, points, bench):
        if not record["classes"]:
            break  # the profiler sees no kernels on this device
        profiles.append(record)
        yield {"t": "profile", **record}
    gaps = [record["classes"]["gaps"] for record in profiles if record["forward"] == DECODE]
    starting_s, fast = cost.starting_seconds(points, gaps), fast_memory(loaded.device)
    roof = cost.raised(roof, points, fast)
    row = replace(
        cost.raised(row, [p for p in points if p["phase"] == DECODE and p["batch"] == 1], fast), flops=roof.flops
    )
    document = {
        "model": loaded.source.model,
        "spec": spec.to_dict(),
        "title": loaded.source.title,
        "weights": loaded.source.weights,
        "params": loaded.params,
        "dtype": loaded.dtype,
        "environment": asdict(loaded.environment),
        "measured_at": ceilings.measured_at,
        "roof": asdict(roof),
        "row": asdict(row),
        "launch": ceilings.launch,
        "starting_s": starting_s,
        "fast_memory_bytes": fast,
        "near_read": _near_read(loaded.device, points, fast),
        "points": cost.judged(points, roof, row, starting_s),
        "profiles": profiles,
        "outweighs": cost.weighed(shape, spec.lengths, spec.dtype),
    }
    yield {"t": "done", "document": {**document, "sentences": sentences(document)}}


def _ceilings(device: str) -> Ceilings:
    """The ceilings of this environment; measure them for this run if they can't be read or stored."""
    try:
        return known_ceilings(device, nullcontext())  # no lock: this experiment already has the device
    except KvvizError as error:
        log.warning("the ceilings are measured for this run alone: %s", error)
        return measure_ceilings(device)


def fast_memory(device: str) -> int:
    """Bytes of the largest on-chip cache; 0 if the system does not report it."""
    if device.startswith("cuda"):
        return int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0))
    return last_level_cache() if device == "cpu" else 0


def _near_read(device: str, points: Sequence[Point], fast: int) -> float | None:
    """B/s at which a processor reads from its own cache as many bytes as the largest step of one sequence does.

    None if they do not fit into it, and on a GPU, where so short a read is hidden by its launch.
    """
    most = max(p["bytes"] for p in points if p["phase"] == DECODE and p["batch"] == 1)
    return near_read_rate(most) if device == "cpu" and most <= fast else None


def _measured(loaded: Loaded, place: Place, prompt: torch.Tensor, count: int, bench: Bench) -> list[float]:
    """Time each forward, in seconds. For a decode, the middle step reaches the context length that `place` names."""
    sync = synchroniser(loaded.device)
    if place.phase == DECODE:
        seconds = list(_seconds(_decoding(loaded, place, prompt, count), sync, bench))
        return seconds[1 + WARMUP :]  # the first is the prefill
    found: list[float] = []
    for _ in range(WARMUP + count):
        steps = decode(loaded.model, prompt[:, : place.tokens], mode="cached", new_tokens=1)
        found += _seconds(steps, sync, bench)
    return found[WARMUP:]


def _seconds(steps: Iterator[Any], sync: Sync, bench: Bench) -> Iterator[float]:
    for step in timed(steps, sync):
        yield step.seconds
        bench.check_stop()


def _decoding(loaded: Loaded, place: Place, prompt: torch.Tensor, count: int) -> Iterator[None]:
    """Prefill one sequence, repeat its cache for the batch, then run WARMUP + count decode steps of all sequences."""
    before = place.tokens - WARMUP - 1 - count // 2  # prompt tokens; the middle step reaches place.tokens
    forward = mode_named("cached").open(loaded.model, place.tokens + count)
    ids = prompt[:, : max(1, before)]
    with torch.inference_mode():
        logits, cache = forward(ids, ids)
        if place.batch > 1:
            _widen(cache, place.batch)
        new = greedy(logits, 0).repeat(place.batch)[:, None]
    yield
    for index in range(WARMUP + count):
        with torch.inference_mode():
            logits, _ = forward(new, new)
            new = greedy(logits, index)[:, None]
        yield


def _widen(cache: Any, batch: int) -> None:
    """Repeat the cache of one sequence for `batch` equal sequences."""
    try:
        cache.batch_repeat_interleave(batch)
    except (AttributeError, NotImplementedError, TypeError) as error:
        raise KvvizError(
            f"the cache of this model ({type(cache).__name__}) can't be repeated for a batch; ask for a batch of 1"
        ) from error


def _profiles(
    spec: RoofSpec, loaded: Loaded, prompt: torch.Tensor, points: Sequence[Point], bench: Bench
) -> Iterator[dict[str, Any]]:
    """Profile each forward at the longest context."""
    sync = synchroniser(loaded.device)
    took = {(p["phase"], p["batch"]): p["s"] for p in points if p["tokens"] == spec.tokens}
    for name, batch, call in _forwards(spec, loaded, prompt):
        bench.check_stop()
        seconds = took[PREFILL if name in (PREFILL, UNCACHED) else DECODE, batch]
        count = max(FEW, min(PROFILED, int(BUDGET / seconds)))
        found = profile(loaded.model, [call] * count, loaded.device, sync)
        yield {
            "forward": name,
            "tokens": spec.tokens,
            "batch": batch,
            "wall_s": found.wall,
            "unprofiled_s": _alone(call, sync, count) if name in (COMPILED, UNCACHED) else seconds,
            "operations": found.operations,
            "classes": found.classes,
        }


def _forwards(spec: RoofSpec, loaded: Loaded, prompt: torch.Tensor) -> Iterator[tuple[str, int, Callable[[], Any]]]:
    """Prepare each forward that is profiled, one after the other; yields its name, its batch and a call of it.

    They are a prefill, a decode step, a compiled one, a step without a cache, and steps of two sequences and of most.
    """

    def whole(mode: str) -> Callable[[], Any]:
        return lambda: next(decode(loaded.model, prompt, mode=mode, new_tokens=1))

    def step(batch: int) -> Callable[[], Any]:
        steps = _decoding(loaded, Place(DECODE, spec.tokens, batch), prompt, PROFILED)
        for _ in range(1 + WARMUP):
            next(steps)
        return lambda: next(steps)

    yield PREFILL, 1, whole("cached")
    yield DECODE, 1, step(1)
    if compiled := _compiled_step(loaded, prompt):
        yield COMPILED, 1, compiled
    yield UNCACHED, 1, whole("uncached")
    for batch in sorted({2, spec.batch}.intersection(spec.batches[1:])):
        yield together(batch), batch, step(batch)


def _compiled_step(loaded: Loaded, prompt: torch.Tensor) -> Callable[[], Any] | None:
    """Prepare a step of the mode `compiled`; None if it can't decode the model or can't run a step as one call."""
    mode = mode_named("compiled")
    try:
        mode.check(loaded.source.config or {})
    except KvvizError:
        return None
    forward = CompiledForward(loaded.model, prompt.shape[1])
    forward.prepare(1)
    if forward.path == "operations":
        return None
    with torch.inference_mode():
        ids = prompt[:, : max(1, prompt.shape[1] - WARMUP - 2 * PROFILED - SETTLE - 1)]
        new = greedy(forward(ids, ids)[0], 0)[:, None]
    sync = synchroniser(loaded.device)
    forward.wrap_step(lambda step: as_one_call(step, sync))

    def step() -> None:
        nonlocal new
        with torch.inference_mode():
            new = greedy(forward(new, new)[0], 0)[:, None]

    for _ in range(WARMUP):
        step()
    return step


def _alone(call: Callable[[], Any], sync: Sync, count: int) -> float:
    with no_collection():
        for _ in range(min(count, SETTLE)):
            call()
        return median_call(call, sync, count)
