"""Who measures on this machine: a worker for each device that the settings name. Standard library only."""

import json
import subprocess
import sys
from collections.abc import Sequence

from kvviz.base.errors import KvvizError
from kvviz.device.cores import divided
from kvviz.server.worker_process import WorkerLink, named_worker

LISTING_S = 120.0  # seconds that torch may take to start and to try each card


def staff(asked: Sequence[str], measuring: Sequence[int], serving: Sequence[int]) -> list[WorkerLink]:
    """Links to the workers of these names, each with cores of its own; "all" is each device that works.

    Empty if none is named, or if all devices are one: then a server has its usual single worker.
    """
    names = working_devices() if list(asked) == ["all"] else list(asked)
    if not asked or (names != list(asked) and len(names) == 1):
        return []
    return [named_worker(name, cores) for name, cores in zip(names, divided(names, measuring, serving), strict=True)]


def working_devices() -> list[str]:
    """Ask torch, in a process of its own, for the devices on which it computes. Raises KvvizError if it can't tell."""
    command = [sys.executable, "-m", "kvviz.worker", "devices"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LISTING_S, check=True)
        found: list[str] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise KvvizError(f"the devices of this machine could not be listed ({type(error).__name__})") from error
    return found
