"""A device's memory: its free and total bytes, the processor's largest cache, and errors that say it is full."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import torch

from kvviz.base.errors import in_a_line
from kvviz.base.words import human

NO_MEMORY = (
    *("can't allocate memory", "Cannot allocate memory", "bad_alloc"),
    *(
        "MPS backend out of memory",
        "CUBLAS_STATUS_ALLOC_FAILED",
        "CUDA error: out of memory",
        "CUDNN_STATUS_ALLOC_FAILED",
    ),
)
MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of glibc's malloc.h
LOST_DEVICE_ERRORS = ("CUDA error:", "CUDA driver error:", "CUBLAS_STATUS_", "CUDNN_STATUS_")


def device_memory(device: str) -> tuple[int, int]:
    """Return (free, total) bytes of the device's memory; for a CPU, of the host memory that this process may use.

    What torch's allocator holds in reserve without using it counts as free.
    """
    if device.startswith("cuda"):
        free, total = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device), total
    if device.startswith("mps"):
        total = torch.mps.recommended_max_memory()
        return total - torch.mps.driver_allocated_memory(), total
    return _host_memory()


def keep_freed_memory() -> None:
    """Have glibc's malloc keep up to a gigabyte of freed memory for the next step; elsewhere nothing changes.

    By default, it gives freed tensors of some megabytes back to the system, which then makes each page of the next ones
    anew. That takes up to a fifth of a step, but only in some runs: it depends on what was freed before. mallopt(3).
    """
    if mallopt := _of_libc("mallopt"):
        mallopt(MMAP_THRESHOLD, 2**25)  # the most that it takes on a 64-bit machine
        mallopt(TRIM_THRESHOLD, 2**30)


def give_freed_memory_back() -> None:
    """Have glibc's malloc give all freed memory back to the system; elsewhere nothing happens."""
    if trim := _of_libc("malloc_trim"):
        trim(0)


def _of_libc(name: str) -> Callable[[*tuple[int, ...]], int] | None:
    try:
        return getattr(ctypes.CDLL(None), name, None) if os.name == "posix" else None
    except OSError:
        return None


def _host_memory() -> tuple[int, int]:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        free = total  # the system does not report the available memory
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        used = int(Path("/sys/fs/cgroup/memory.current").read_text()) - _page_cache()
        return min(free, limit - used), min(total, limit)
    except (OSError, ValueError):  # this process has no memory limit
        return free, total


def _page_cache() -> int:
    """Bytes counted as used by this control group although the system can drop them: inactive pages of files."""
    lines = Path("/sys/fs/cgroup/memory.stat").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("inactive_file")), 0)


def last_level_cache() -> int:
    """Bytes of the processor's largest cache; 0 if the system does not report it."""
    try:
        sizes = [file.read_text().strip() for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
        return max((int(size[:-1]) * {"K": 2**10, "M": 2**20}[size[-1]] for size in sizes), default=0)
    except (OSError, ValueError, KeyError, IndexError):
        return 0


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed: in Python, on a GPU, on the CPU (a RuntimeError) or in the system (ENOMEM)."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(word in str(error) for word in NO_MEMORY)


def is_device_lost(error: BaseException) -> bool:
    """Whether the GPU itself failed: after such an error every later call of the process fails too."""
    return any(word in str(error) for word in LOST_DEVICE_ERRORS) and not is_out_of_memory(error)


def out_of_memory(error: Exception, device: str, doing: str) -> str:
    """Describe a failed allocation: what was running (the error's note, else `doing`) and the free bytes."""
    where = next(iter(getattr(error, "__notes__", ())), doing)
    return f"the device ran out of memory during {where} ({human(device_memory(device)[0])} are free now)"


def unexpected(error: Exception) -> str:
    """Describe an error that kvviz does not know, by its type and its first line."""
    return f"the model could not be run ({in_a_line(error)})"
