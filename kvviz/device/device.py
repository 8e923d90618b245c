"""The device that does the work: which one, how much memory it has, how fast it is."""

import os
import platform
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch

from kvviz.base.errors import KvvizError
from kvviz.base.records import Environment
from kvviz.base.words import human
from kvviz.cost.flops import Rates
from kvviz.device.clock import synchroniser


def pick_device(name: str = "auto") -> str:
    """`auto` is CUDA where there is one, else MPS, else the CPU. Raises KvvizError for what is not there."""
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return next(kind for kind, there in present.items() if there)
    if not present.get(name.split(":")[0]):
        there = ", ".join(kind for kind, is_there in present.items() if is_there)
        raise KvvizError(f"device {name!r} is not on this machine; here there is {there}")
    return name


def device_memory(device: str) -> tuple[int, int]:
    """(free, total) bytes of the device's memory; for a CPU, of the machine's as far as this process may use it."""
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(device)
    if device.startswith("mps"):
        total = torch.mps.recommended_max_memory()
        return total - torch.mps.driver_allocated_memory(), total
    return _host_memory()


def _host_memory() -> tuple[int, int]:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        free = total  # a system that does not tell what is available
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        used = int(Path("/sys/fs/cgroup/memory.current").read_text()) - _page_cache()
        return min(free, limit - used), min(total, limit)
    except (OSError, ValueError):  # no limit on this process
        return free, total


def _page_cache() -> int:
    """Bytes that count as used by this control group but are files that the system drops when it needs to."""
    lines = Path("/sys/fs/cgroup/memory.stat").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("inactive_file")), 0)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocator said no: Python's, CUDA's, the CPU's (a plain RuntimeError), or the system's (ENOMEM)."""
    words = ("can't allocate memory", "Cannot allocate memory", "bad_alloc")
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(word in str(error) for word in words)


def ran_out(error: Exception, device: str, doing: str) -> str:
    """The sentence for an allocator's no: what it was about, by the error's note or else `doing`, and what is free."""
    where = next(iter(getattr(error, "__notes__", ())), doing)
    return f"the device ran out of memory during {where} ({human(device_memory(device)[0])} are free now)"


def unforeseen(error: Exception) -> str:
    """The sentence for an error that nobody foresaw: its kind and its first line."""
    first = str(error).strip().splitlines()[:1]
    return f"the model could not be run ({type(error).__name__}{': ' + first[0][:200] if first else ''})"


def device_name(device: str) -> str:
    """The name that the device gives itself."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def set_threads(count: int) -> None:
    """Compute with `count` threads, and in float32 proper: TF32 would blur the identity proof."""
    torch.set_num_threads(max(1, count))
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def environment(model: Any, device: str, dtype: str) -> Environment:
    """What a measurement of this model depends on."""
    return surroundings(str(model.config._attn_implementation), device, dtype)


def surroundings(attn: str, device: str, dtype: str) -> Environment:
    """What a measurement depends on, read from the running process."""
    import transformers

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Environment(
        device=device,
        device_name=device_name(device),
        dtype=dtype,
        attn_implementation=attn,
        threads=torch.get_num_threads(),
        cores=cores,
        torch=torch.__version__,
        transformers=transformers.__version__,
        python=platform.python_version(),
        platform=platform.platform(),
    )


def measure_rates(device: str) -> Rates:
    """Measure the three rates that estimates stand on, in float32, in about half a second."""
    sync = synchroniser(device)
    weight, row, rows = (torch.randn(n, 8192, device=device) for n in (2048, 1, 64))
    small = torch.zeros(8, device=device)
    with torch.inference_mode():
        one_row = _best(lambda: torch.nn.functional.linear(row, weight), sync)
        many_rows = _best(lambda: torch.nn.functional.linear(rows, weight), sync)
        launch = _best(lambda: small.add_(1), sync)
    return Rates(weight.numel() * weight.element_size() / one_row, 2 * weight.numel() * 64 / many_rows, launch)


def rates_here(device: str) -> Rates:
    """The three rates, measured once by each process, before its first work that asks for them."""
    return _rates(device, torch.get_num_threads())


@cache
def _rates(device: str, threads: int) -> Rates:
    return measure_rates(device)


def _best(work: Callable[[], Any], sync: Callable[[], None], budget: float = 0.12) -> float:
    """Seconds of the fastest of as many calls as fit into `budget` seconds."""
    best, end = float("inf"), time.perf_counter() + budget
    while time.perf_counter() < end:
        sync()
        start = time.perf_counter()
        work()
        sync()
        best = min(best, time.perf_counter() - start)
    return best
