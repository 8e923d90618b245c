"""The ceilings of this device, measured on the spot in a few seconds.

The device has to be the caller's alone (`kvviz.device.lock`). Each figure is that of the fastest of many calls: what
another process takes away meanwhile makes single calls slower, never faster.
"""

import logging
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from kvviz.base.errors import KvvizError
from kvviz.cost.ceilings import ESTIMATE, Ceilings, Machine, MatrixRate, keep, kept_for
from kvviz.cost.flops import Rates
from kvviz.device.clock import synchroniser
from kvviz.device.device import device_memory, device_name, rates_here

log = logging.getLogger("kvviz.device.measure_ceilings")

WIDE = 8192  # columns of the buffer, seen as a matrix
LEAST = 2**26  # bytes of the buffer below which no processor's cache is left behind
LONGEST = 0.4  # seconds that one product may take; a larger one is left out
DTYPES = ("float32", "bfloat16", "float16")
READS: dict[str, Callable[[torch.Tensor], Any]] = {
    "sum": torch.sum,
    "row-sums": lambda buffer: buffer.view(-1, WIDE).sum(1),
    "largest": torch.max,
    "norm": torch.linalg.vector_norm,
}


def machine(device: str) -> Machine:
    """What ceilings depend on, read from the running process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Machine(
        device=device,
        device_name=device_name(device),
        threads=torch.get_num_threads(),
        cores=cores,
        torch=torch.__version__,
        python=platform.python_version(),
        platform=platform.platform(),
    )


def known_ceilings(device: str, turn: AbstractContextManager[None], *, refresh: bool = False) -> Ceilings:
    """The kept ceilings of this environment, else, or to `refresh` them, those measured now and kept.

    They are measured within `turn`, which makes the device the caller's alone. Raises KvvizError where they can't be
    read, measured or kept.
    """
    found = None if refresh else kept_for(machine(device))
    if found is None:
        with turn:
            found = gauge(device)
        keep(found)
    return found


def known_rates(device: str) -> Rates:
    """The rates that estimates stand on: those of the kept ceilings of this environment, else measured now."""
    try:
        found = kept_for(machine(device))
    except KvvizError as error:
        log.warning("measuring the device's rates anew: %s", error)
        found = None
    return (found and found.rates()) or rates_here(device)


def gauge(device: str, *, seconds: float = 4.0, buffer_bytes: int | None = None) -> Ceilings:
    """Measure all ceilings in about so many seconds. Raises KvvizError where there is no memory to read from."""
    sync, size = synchroniser(device), buffer_bytes or reading_bytes(device)
    with torch.inference_mode():
        buffer = torch.ones(size // 4, device=device)  # as bfloat16 and float16, its bits are plain numbers too
        reads = read_rates(buffer, sync, 0.3 * seconds)
        rows = _row_products(buffer, sync, 0.25 * seconds)
        del buffer
        matrix = tuple(_matrix_rates(device, sync, 0.4 * seconds))
        small = torch.zeros(8, device=device)
        launch = race({"": lambda: small.add_(1)}, sync, 0.03 * seconds)[""]
    fastest = max(reads, key=reads.__getitem__)
    return Ceilings(
        environment=machine(device),
        measured_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        buffer_bytes=size,
        read_bandwidth=reads[fastest],
        read_by=fastest,
        reads=reads,
        row_product=rows,
        matrix=matrix,
        launch=launch,
    )


def reading_bytes(device: str) -> int:
    """Bytes of the buffer that is read: many times the last-level cache, at most a quarter of the free memory."""
    wanted = 2**31 if device.startswith("cuda") else max(2**28, 8 * last_level_cache())
    size = min(wanted, device_memory(device)[0] // 4) // (4 * WIDE) * 4 * WIDE
    if size < LEAST:
        raise KvvizError(f"too little memory is free on {device} to measure how fast it is read")
    return size


def last_level_cache() -> int:
    """Bytes of the processor's largest cache; 0 where the system does not tell."""
    try:
        sizes = [file.read_text().strip() for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
        return max((int(size[:-1]) * {"K": 2**10, "M": 2**20}[size[-1]] for size in sizes), default=0)
    except (OSError, ValueError, KeyError, IndexError):
        return 0


def race(calls: dict[str, Callable[[], Any]], sync: Callable[[], None], seconds: float) -> dict[str, float]:
    """Seconds of the fastest call of each, taking turns until the time is up; each has one round to warm up."""
    best = dict.fromkeys(calls, float("inf"))
    end, number = time.perf_counter() + seconds, 0
    while number < 2 or time.perf_counter() < end:
        for name, call in calls.items():
            sync()
            start = time.perf_counter()
            call()
            sync()
            best[name] = min(best[name], time.perf_counter() - start) if number else best[name]
        number += 1
    return best


def read_rates(buffer: torch.Tensor, sync: Callable[[], None], seconds: float) -> dict[str, float]:
    """B/s of each of the kernels that read a float32 buffer once and write next to nothing."""
    calls = {name: lambda kernel=kernel: kernel(buffer) for name, kernel in READS.items()}
    return {name: buffer.nbytes / took for name, took in race(calls, sync, seconds).items()}


def _row_products(buffer: torch.Tensor, sync: Callable[[], None], seconds: float) -> dict[str, float]:
    """B/s by dtype of one row times the buffer, seen as a matrix of that dtype."""
    calls = {}
    for dtype in DTYPES:
        try:
            kind = getattr(torch, dtype)
            row, weight = torch.ones(1, WIDE, device=buffer.device, dtype=kind), buffer.view(kind).view(-1, WIDE)
            calls[dtype] = lambda row=row, weight=weight: torch.nn.functional.linear(row, weight)
            calls[dtype]()
        except (RuntimeError, TypeError):  # a dtype that this device does not know
            calls.pop(dtype, None)
    return {dtype: buffer.nbytes / took for dtype, took in race(calls, sync, seconds).items()}


def _matrix_rates(device: str, sync: Callable[[], None], seconds: float) -> Iterator[MatrixRate]:
    sizes = (256, 512, 1024, 2048, 4096, 8192)[: 6 if device.startswith("cuda") else 4]
    shapes = [*((n, n, n) for n in sizes), ESTIMATE]
    for dtype in DTYPES:
        rate = None
        for shape in shapes:
            work = 2 * shape[0] * shape[1] * shape[2]
            always = dtype == "float32" and shape == ESTIMATE
            if rate is not None and work / rate > LONGEST and not always:
                continue
            try:
                took = _product(device, dtype, shape, sync, seconds / len(DTYPES) / len(shapes))
            except (RuntimeError, TypeError):  # a dtype that this device does not know, or no room for these matrices
                break
            rate = work / took
            yield MatrixRate(dtype, *shape, rate)


def _product(device: str, dtype: str, shape: tuple[int, int, int], sync: Callable[[], None], seconds: float) -> float:
    rows, inner, columns = shape
    left = torch.randn(rows, inner, device=device).to(getattr(torch, dtype))
    weight = torch.randn(columns, inner, device=device).to(getattr(torch, dtype))
    return race({"": lambda: torch.nn.functional.linear(left, weight)}, sync, seconds)[""]
