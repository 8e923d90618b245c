"""Measure the ceilings of this device in a few seconds, and the three rates that estimates use in half a second.

The caller must hold the device lock (`kvviz.device.lock`). Each figure comes from the fastest of many calls, because
another process can make single calls slower but never faster.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial

import torch

from kvviz.base.errors import KvvizError
from kvviz.base.records import DTYPES
from kvviz.cost.ceilings import ESTIMATE, Ceilings, MatrixRate, keep, kept_for, with_rows
from kvviz.cost.flops import Rates
from kvviz.device.clock import Sync, fastest_call, fastest_calls, synchroniser
from kvviz.device.environment import machine
from kvviz.device.memory import device_memory, last_level_cache
from kvviz.device.remembered import Remembered, remembered

log = logging.getLogger("kvviz.device.measure_ceilings")

WIDE = 8192  # columns of the buffer when it is used as a matrix
LEAST = 2**26  # bytes of the buffer; a smaller one would fit into a processor's cache
LONGEST = 0.4  # seconds that one product may take; larger products are skipped
READ_AGAIN = 2**26  # bytes of the buffer whose read is repeated before a comparison; four times as many on a GPU
READ_S = 0.005  # seconds for that, or more where memory is slow:
READS_LEAST = 5  # the fastest of fewer reads would still hold their noise
SECONDS = 0.12  # for each of the three rates of estimates, measured apart
READS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": torch.sum,
    "row-sums": lambda buffer: buffer.view(-1, WIDE).sum(1),
    "largest": torch.max,
    "norm": torch.linalg.vector_norm,
}


def known_ceilings(device: str, turn: AbstractContextManager[None], *, refresh: bool = False) -> Ceilings:
    """Return the stored ceilings of this environment; measure and store them if there are none, or to `refresh` them.

    The measurement runs within `turn`, which holds the device lock. Raises KvvizError if the ceilings can't be read,
    measured or stored.
    """
    found = None if refresh else kept_for(machine(device))
    if found is None:
        with turn:
            found = measure_ceilings(device)
        keep(found)
    return found


def measure_ceilings(device: str, *, seconds: float = 4.0, buffer_bytes: int | None = None) -> Ceilings:
    """Measure all ceilings in about `seconds` seconds. Raises KvvizError if too little memory is free."""
    sync, size = synchroniser(device), buffer_bytes or reading_bytes(device)
    with torch.inference_mode():
        buffer = torch.ones(size // 4, device=device)  # its bits are ordinary numbers in bfloat16 and float16 too
        reads = read_rates(buffer, sync, 0.3 * seconds)
        rows = _row_products(buffer, sync, 0.25 * seconds)
        del buffer
        matrix = tuple(_matrix_rates(device, sync, 0.4 * seconds))
        launch = _launch(device, sync, 0.03 * seconds)
    fastest = max(reads, key=reads.__getitem__)
    found = Ceilings(
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
    return with_rows(found)


def reading_bytes(device: str) -> int:
    """Bytes of the buffer to read: many times the last-level cache, at most a quarter of the free memory."""
    wanted = 2**31 if device.startswith("cuda") else max(2**28, 8 * last_level_cache())
    size = min(wanted, device_memory(device)[0] // 4) // (4 * WIDE) * 4 * WIDE
    if size < LEAST:
        raise KvvizError(f"too little memory is free on {device} to measure how fast it is read")
    return size


def read_rates(buffer: torch.Tensor, sync: Sync, seconds: float) -> dict[str, float]:
    """B/s of each kernel that reads a float32 buffer once and writes almost nothing."""
    calls = {name: partial(kernel, buffer) for name, kernel in READS.items()}
    return {name: buffer.nbytes / took for name, took in fastest_calls(calls, sync, seconds).items()}


@torch.inference_mode()
def read_figure(device: str) -> float | None:
    """B/s of the fastest of a few plain reads of a small buffer; it is held against itself alone.

    Even where a processor's cache holds the buffer, it tells that the machine has become slower. None if too little
    memory is free.
    """
    size = READ_AGAIN if device == "cpu" else 4 * READ_AGAIN
    if 4 * size > device_memory(device)[0]:
        return None
    buffer = torch.ones(size // 4, device=device)
    return buffer.nbytes / fastest_call(partial(READS["row-sums"], buffer), synchroniser(device), READ_S, READS_LEAST)


@torch.inference_mode()
def near_read_rate(size: int) -> float:
    """B/s of the fastest plain read of `size` bytes that a processor reads again and again from its own cache."""
    return max(read_rates(torch.ones(max(1, size // (4 * WIDE)) * WIDE), synchroniser("cpu"), SECONDS).values())


def _row_products(buffer: torch.Tensor, sync: Sync, seconds: float) -> dict[str, float]:
    """B/s of a one-row product by dtype; the buffer serves as the matrix."""
    calls: dict[str, Callable[[], object]] = {}
    for dtype in DTYPES:
        try:
            kind = getattr(torch, dtype)
            row, weight = torch.ones(1, WIDE, device=buffer.device, dtype=kind), buffer.view(kind).view(-1, WIDE)
            calls[dtype] = partial(torch.nn.functional.linear, row, weight)
            calls[dtype]()
        except (RuntimeError, TypeError):  # this device does not support the dtype
            calls.pop(dtype, None)
    return {dtype: buffer.nbytes / took for dtype, took in fastest_calls(calls, sync, seconds).items()}


def _matrix_rates(device: str, sync: Sync, seconds: float) -> Iterator[MatrixRate]:
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
            except (RuntimeError, TypeError):  # the dtype is unsupported, or the matrices do not fit
                break
            rate = work / took
            yield MatrixRate(dtype, *shape, rate)


def _product(device: str, dtype: str, shape: tuple[int, int, int], sync: Sync, seconds: float) -> float:
    rows, inner, columns = shape
    left = torch.randn(rows, inner, device=device).to(getattr(torch, dtype))
    weight = torch.randn(columns, inner, device=device).to(getattr(torch, dtype))
    return fastest_call(lambda: torch.nn.functional.linear(left, weight), sync, seconds)


# --- the three rates that estimates use -----------------------------------------------------------------------------


def known_rates(device: str) -> Rates:
    """Return the rates of this environment's stored ceilings; without those, measure them, anew when in doubt."""
    try:
        found = kept_for(machine(device))
    except KvvizError as error:
        log.warning("measuring the device's rates anew: %s", error)
        found = None
    return (found and found.rates()) or _rates.get((device, torch.get_num_threads()), lambda: measure_rates(device))


_rates: Remembered[Rates] = remembered(lambda rates: rates.read)


@torch.inference_mode()
def measure_rates(device: str) -> Rates:
    """Measure the three rates in float32, and that of a product in bfloat16, in about half a second."""
    sync = synchroniser(device)
    columns, calls = (2048, 1) if device == "cpu" else (8192, 8)  # on a GPU, far more work than its synchronisation
    weight, row, rows = (torch.randn(n, 8192, device=device) for n in (columns, 1, 64))

    def seconds(rows: torch.Tensor, weight: torch.Tensor) -> float:
        def products() -> None:
            for _ in range(calls):
                torch.nn.functional.linear(rows, weight)

        return fastest_call(products, sync, SECONDS) / calls

    read, work = weight.nbytes / seconds(row, weight), 2 * weight.numel() * 64
    flops = work / seconds(rows, weight)
    try:
        half = work / seconds(rows.bfloat16(), weight.bfloat16())
    except (RuntimeError, TypeError):  # this device does not support the dtype
        half = None
    return Rates(read, flops, _launch(device, sync, SECONDS), half)


def _launch(device: str, sync: Sync, seconds: float) -> float:
    """Seconds of the shortest operation; on a GPU, which queues them, the mean over many that are waited for once."""
    small, calls = torch.zeros(8, device=device), 1 if device == "cpu" else 64

    def add() -> None:
        for _ in range(calls):
            small.add_(1)

    return fastest_call(add, sync, seconds) / calls
