"""The processor's name, which of its cores this process may use, and how they are shared. Standard library only."""

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path


def usable_cores() -> int:
    """Number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share_of_cores() -> tuple[list[int], list[int]]:
    """The measuring process's cores (all but the last) and the server's core (the last).

    Both share a single core. Both lists are empty on a system that can't pin processes.
    """
    if not hasattr(os, "sched_getaffinity"):
        return [], []
    cores = sorted(os.sched_getaffinity(0))
    return cores[:-1] or cores, cores[-1:]


def divided(workers: Sequence[str], measuring: Sequence[int], serving: Sequence[int]) -> list[list[int]]:
    """Each worker's cores, disjoint: two at most for one that drives a card, equal shares of the rest for the others.

    Equal shares make two workers on one processor comparable; a remainder stays free. Where there are fewer measuring
    cores than workers, the server's core measures too. Where there are fewer cores than workers, or none can be pinned,
    no worker is pinned.
    """
    cores = list(measuring)
    if len(cores) < len(workers):
        cores = sorted({*cores, *serving})
    if len(cores) < len(workers):
        return [[] for _ in workers]
    for_card = min(2, len(cores) // len(workers))
    processors = sum(worker.startswith("cpu") for worker in workers)
    rest = len(cores) - for_card * (len(workers) - processors)
    counts = [rest // processors if worker.startswith("cpu") else for_card for worker in workers]
    ends = list(accumulate(counts))
    return [cores[end - count : end] for count, end in zip(counts, ends, strict=True)]


def pin(cores: Sequence[int]) -> None:
    """Keep this process on the given cores; does nothing for an empty list."""
    if cores:
        os.sched_setaffinity(0, cores)


def processor_name() -> str:
    """The name of the processor's model, as far as the system tells it."""
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]  # the chip's name, which is the GPU's too
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            return platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
