"""The clock, outside the loop: it times what a generator yields and knows nothing of what is yielded."""

import contextlib
import gc
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kvviz.base.records import Timed


def timed(steps: Iterable[Any], sync: Callable[[], None], clock: Callable[[], float] = time.perf_counter) -> Iterator:
    """Time each `next()` of `steps`, the device synchronised on both sides. Yields Timed (seconds).

    Whatever the consumer does with a step happens while no clock runs.
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


def synchroniser(device: str) -> Callable[[], None]:
    """The function that waits for a device's queued work: CUDA and MPS queue, a CPU does not."""
    import torch

    if device.startswith("cuda"):
        return lambda: torch.cuda.synchronize(device)
    if device.startswith("mps"):
        return torch.mps.synchronize
    return lambda: None


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Keep the garbage collector out of timed steps: collect before, pause within, restore after."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def interleaved(modes: Sequence[str], repeats: int) -> Iterator[tuple[int, str]]:
    """The order of the passes, (repeat, mode): A B, B A, A B, ... so that drift hits all modes alike."""
    for repeat in range(repeats):
        yield from ((repeat, mode) for mode in (modes if repeat % 2 == 0 else reversed(modes)))


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """First quartile, median and third quartile, by linear interpolation between the values."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def share_of_cores() -> tuple[list[int], list[int]]:
    """(the measuring process's cores, the server's core): all but the last, and the last.

    Both get the one core where there is only one; two empty lists where the system can't pin.
    """
    if not hasattr(os, "sched_getaffinity"):
        return [], []
    cores = sorted(os.sched_getaffinity(0))
    return cores[:-1] or cores, cores[-1:]


def pin(cores: Sequence[int]) -> None:
    """Keep this process on the given cores; does nothing for an empty list."""
    if cores:
        os.sched_setaffinity(0, cores)
