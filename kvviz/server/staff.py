"""Who measures on this machine: a worker for each device that the settings name. Standard library only."""

import json
import logging
import subprocess
import sys
from collections.abc import Sequence
from typing import TypedDict

from kvviz.base.errors import KvvizError
from kvviz.device.cores import divided
from kvviz.server.worker_process import WorkerLink, named_worker

log = logging.getLogger("kvviz.server.staff")

LISTING_S = 120.0  # seconds that torch may take to start and to try each card


class WorkingDevice(TypedDict):
    """A device on which torch computes: the name to ask for it, its hardware's name, its memory in bytes."""

    device: str
    device_name: str
    free_bytes: int
    total_bytes: int


def staff(asked: Sequence[str], measuring: Sequence[int], serving: Sequence[int]) -> list[WorkerLink]:
    """Links to the workers of these names, each with cores of its own; "all" is each device that works.

    Empty if none is named, or if all devices are one: then a server has its usual single worker.
    """
    names = list(asked)
    if names == ["all"]:
        try:
            names = [one["device"] for one in working_devices()]
        except KvvizError as error:
            log.warning("%s; one worker measures", error)
            return []
        names = names if len(names) > 1 else []
    return [named_worker(name, cores) for name, cores in planned(names, measuring, serving)]


def planned(names: Sequence[str], measuring: Sequence[int], serving: Sequence[int]) -> list[tuple[str, list[int]]]:
    """Name each worker with its cores."""
    return list(zip(names, divided(names, measuring, serving), strict=True)) if names else []


def working_devices() -> list[WorkingDevice]:
    """Ask torch, in a process of its own, for the devices on which it computes. Raises KvvizError if it can't tell."""
    command = [sys.executable, "-m", "kvviz.worker", "devices"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LISTING_S, check=True)
        found: list[WorkingDevice] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise KvvizError(f"the devices of this machine could not be listed ({type(error).__name__})") from error
    return found
