"""Sizes of a device's memory: free, total, and the processor's largest cache."""

import os
from pathlib import Path

import torch


def device_memory(device: str) -> tuple[int, int]:
    """Return (free, total) bytes of the device's memory; for a CPU, of the host memory that this process may use."""
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
