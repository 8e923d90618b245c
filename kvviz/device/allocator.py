"""Read from the device's allocator how many bytes some work keeps, without looking at any cache or tensor."""

import gc
from collections.abc import Callable
from dataclasses import dataclass

import torch

from kvviz.device.clock import no_collection

PEAK = "kvviz: the peak begins here"  # names an event of the profile


@dataclass(frozen=True)
class Account:
    """Bytes above the start: `kept` is what is left at the end, `peak` the maximum; `kind` names the counter.

    `reserved` is what a caching allocator (CUDA) holds from the driver, before and after.
    """

    kind: str
    kept: int
    peak: int
    reserved: tuple[int, int] | None = None


def can_account(device: str) -> bool:
    """Whether this device's allocator can count bytes."""
    return device == "cpu" or device.startswith("cuda")


def kept_by(make: Callable[[], object], device: str) -> Account:
    """Count the bytes that the result of a call keeps alive, and the peak, on a device that `can_account`.

    CUDA uses its allocator's statistics of the bytes that were asked for; torch.cuda.memory_allocated would round each
    tensor up to 512 bytes. The CPU uses the allocation events of torch.profiler, which are so slow that
    no timed step runs under them. They know a release only of what was allocated within the call, so the call has to
    allocate itself what it may release. Garbage of earlier work is collected before, and that of the call before the
    end. The peak is that of the whole call, or of what follows its last `begin_peak`.
    """

    def tidily() -> object:
        result = make()
        gc.collect()
        return result

    with no_collection():
        return _on_cpu(tidily) if device == "cpu" else _on_cuda(tidily, device)


def begin_peak(device: str) -> None:
    """Have the running account take its peak of what follows, with all that is kept by now in it."""
    gc.collect()
    if device == "cpu":
        with torch.autograd.profiler.record_function(PEAK):
            pass
    else:
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)


def _on_cuda(make: Callable[[], object], device: str) -> Account:
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before, reserved = _requested(device)["current"], torch.cuda.memory_reserved(device)
    result = make()  # alive until the bytes are read
    torch.cuda.synchronize(device)
    after = _requested(device)
    kept, peak = after["current"] - before, after["peak"] - before
    account = Account("cuda_allocated", kept, peak, (reserved, torch.cuda.memory_reserved(device)))
    del result
    return account


def _requested(device: str) -> dict[str, int]:
    statistics = torch.cuda.memory_stats(device)
    return {name: statistics.get(f"requested_bytes.all.{name}", 0) for name in ("current", "peak")}


def _on_cpu(make: Callable[[], object]) -> Account:
    with torch.autograd.profiler.profile(profile_memory=True) as profile:  # torch.profiler's would read every event
        result = make()
    events = [event for event in profile.kineto_results.events() if event.name() in ("[memory]", PEAK)]
    del result
    kept = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        if event.name() == PEAK:
            peak = 0
        else:
            kept += event.nbytes()
        peak = max(peak, kept)
    return Account("profiler", kept, peak)
