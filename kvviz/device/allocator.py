"""What the device's own allocator reports of some work: an account that knows no cache and no tensor by name."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch


@dataclass
class Account:
    """Bytes above the start: `kept` at the end, `peak` at most; `kind` says who counted.

    `reserved` is what a caching allocator (CUDA) holds from the driver, before and after.
    """

    kind: str
    kept: int | None = None
    peak: int | None = None
    reserved: tuple[int, int] | None = None


@contextlib.contextmanager
def account(device: str) -> Iterator[Account | None]:
    """Keep the allocator's account of what happens inside `with`; None for a device without one.

    CUDA: torch.cuda.memory_allocated. CPU: the allocation events of torch.profiler, which are slow
    and so never taken under the clock.
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
    """Whether this device's allocator gives an account."""
    return device == "cpu" or device.startswith("cuda")


def kept_by(make: Callable[[], object], device: str) -> Account | None:
    """Take the account of a call whose result is alive at the end: the bytes that it keeps, and the peak."""
    with account(device) as result:
        kept = make()
    del kept
    return result
