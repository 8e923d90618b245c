"""Which CPU cores this process may use, and how they are shared. Imports only the standard library."""

import os
from collections.abc import Sequence


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


def pin(cores: Sequence[int]) -> None:
    """Keep this process on the given cores; does nothing for an empty list."""
    if cores:
        os.sched_setaffinity(0, cores)
