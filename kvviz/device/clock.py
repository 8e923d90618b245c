"""Time the steps that a generator yields, without knowing what they do."""

import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
Sync = Callable[[], None]


class Timed(NamedTuple, Generic[T]):
    """A step and the seconds it took; the device was synchronised before and after."""

    step: T
    seconds: float


def timed(steps: Iterable[T], sync: Sync, clock: Callable[[], float] = time.perf_counter) -> Iterator[Timed[T]]:
    """Time each `next()` of `steps`; the device is synchronised before and after.

    The clock does not run while the consumer handles a step.
    """
    steps = iter(steps)
    while True:
        sync()
        start = clock()
        try:
            step = next(steps)
        except StopIteration:
            return
        sync()
        yield Timed(step, clock() - start)


def synchroniser(*devices: str) -> Sync:
    """Return the function that waits for the queued work of all these devices; a CPU has no queue."""
    import torch

    waits: list[Sync] = [partial(torch.cuda.synchronize, device) for device in devices if device.startswith("cuda")]
    waits += [torch.mps.synchronize for device in devices if device.startswith("mps")]
    if len(waits) == 1:
        return waits[0]

    def every() -> None:
        for wait in waits:
            wait()

    return every


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Keep the garbage collector out of timed steps: collect before, pause within, restore after.

    The objects that remain are kept out of the next collections. A collection that looks at all objects of a loaded
    model replaces what the processor's caches hold, and the first timed step after it took twice as long.
    """
    was_enabled = gc.isenabled()
    keep_out()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def keep_out() -> None:
    """Collect, and keep what this process still holds out of the next collections, until `gc.unfreeze`."""
    gc.collect()
    gc.freeze()


def interleaved(modes: Sequence[str], repeats: int) -> Iterator[tuple[int, str]]:
    """Yield the order of the passes as (repeat, mode): A B, B A, A B, ..., so that drift affects all modes equally."""
    for repeat in range(repeats):
        yield from ((repeat, mode) for mode in (modes if repeat % 2 == 0 else reversed(modes)))


_check: ContextVar[Callable[[], None]] = ContextVar("check", default=lambda: None)


@contextlib.contextmanager
def checked_between_calls(check: Callable[[], None]) -> Iterator[None]:
    """Call `check` before each call that this module times; it may raise to end what is measured within `with`."""
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


def may_end_here() -> None:
    """Let what `checked_between_calls` was given end a measurement that times its calls by itself."""
    _check.get()()


def fastest_calls(
    calls: Mapping[str, Callable[[], object]], sync: Sync, seconds: float, least: int = 1
) -> dict[str, float]:
    """Seconds of each function's fastest call; the functions take turns until the time is up, after a warm-up round.

    Each is called at least `least` times beside the warm-up, however long that takes.
    """
    best = dict.fromkeys(calls, float("inf"))
    end, number = time.perf_counter() + seconds, 0
    while number <= least or time.perf_counter() < end:
        for name, call in calls.items():
            took = _seconds(call, sync)
            best[name] = min(best[name], took) if number else best[name]
        number += 1
    return best


def fastest_call(call: Callable[[], object], sync: Sync, seconds: float, least: int = 1) -> float:
    """Seconds of the fastest call within the time, of `least` calls or more, after one call to warm up."""
    return fastest_calls({"": call}, sync, seconds, least)[""]


def median_call(call: Callable[[], object], sync: Sync, calls: int = 5) -> float:
    """Seconds of the median call, after one call to warm up."""
    return statistics.median([_seconds(call, sync) for _ in range(calls + 1)][1:])


def _seconds(call: Callable[[], object], sync: Sync) -> float:
    may_end_here()
    sync()
    start = time.perf_counter()
    call()
    sync()
    return time.perf_counter() - start


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """First quartile, median and third quartile, by linear interpolation between the values."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high
