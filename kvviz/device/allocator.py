"""Read from the device's allocator how many bytes some work keeps, without looking at any cache or tensor."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch


@dataclass
class Account:
    """Bytes above the start: `kept` is what is left at the end, `peak` the maximum; `kind` names the counter.

    `reserved` is what a caching allocator (CUDA) holds from the driver, before and after.
    """

    kind: str
    kept: int | None = None
    peak: int | None = None
    reserved: tuple[int, int] | None = None


@contextlib.contextmanager
def account(device: str) -> Iterator[Account | None]:
    """Count inside `with` the bytes that the allocator hands out; yields None on a device without such a count.

    CUDA uses torch.cuda.memory_allocated. The CPU uses the allocation events of torch.profiler, which are so slow that
    no timed step runs under them.
    """
    if device.startswith("cuda"):
        yield from _cuda(device)
    elif device == "cpu":
        yield from _cpu()
    else:
        yield None


def _cuda(device: str) -> Iterator[Account]:
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
    result = Account("cuda_allocated")
    yield result
    torch.cuda.synchronize(device)
    result.kept = torch.cuda.memory_allocated(device) - before
    result.peak = torch.cuda.max_memory_allocated(device) - before
    result.reserved = (reserved, torch.cuda.memory_reserved(device))


def _cpu() -> Iterator[Account]:
    result = Account("profiler")
    activity = torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[activity], profile_memory=True, acc_events=True) as profile:
        yield result
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    result.kept = result.peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        result.kept += event.nbytes()
        result.peak = max(result.peak, result.kept)


def can_account(device: str) -> bool:
    """Whether this device's allocator can count bytes."""
    return device == "cpu" or device.startswith("cuda")


def kept_by(make: Callable[[], object], device: str) -> Account | None:
    """Count the bytes that the result of a call keeps alive, and the peak during the call."""
    with account(device) as result:
        kept = make()
    del kept
    return result
