"""Choose the device and the number of threads, and describe the environment that a measurement depends on."""

import logging
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import torch

from kvviz.base.errors import KvvizError, in_a_line
from kvviz.base.records import SPLIT, Environment, Machine
from kvviz.base.settings import settings
from kvviz.device.cores import pin, processor_name, share_of_cores, usable_cores
from kvviz.device.memory import device_memory
from kvviz.device.nvidia_card import seen_card, why_unused

log = logging.getLogger("kvviz.device")
_called: str | None = None  # this process, by its server, if that has several workers


@dataclass(frozen=True)
class Place:
    """The device on which kvviz computes unless it is told otherwise, and why it is not this machine's GPU ("")."""

    device: str
    why: str = ""


def devices() -> list[str]:
    """Return the names of this machine's devices as torch counts them, the fastest kind first."""
    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = ["cuda"] if cards == 1 else [f"cuda:{index}" for index in range(cards)]
    return [*names, *(["mps"] if torch.backends.mps.is_available() else []), "cpu"]


def working_devices() -> list[dict[str, object]]:
    """Describe the devices on which a small product comes out right: names, and memory in bytes."""
    working = [device for device in devices() if device == "cpu" or not _why_useless(device)]
    memory = ((device, *device_memory(device)) for device in working)
    return [
        {"device": device, "device_name": device_name(device), "free_bytes": free, "total_bytes": total}
        for device, free, total in memory
    ]


def pick_device(name: str = "auto") -> str:
    """Resolve `auto` to this process's default device. Raises KvvizError for a device that this machine lacks."""
    if name == "auto":
        return default_place().device
    if name == SPLIT:
        raise KvvizError("only a comparison (`kvviz run`) takes the device split: name one device, or leave it out")
    there = devices()
    if name not in (*there, *(["cuda"] if "cuda:0" in there else []), *(["cuda:0"] if "cuda" in there else [])):
        raise KvvizError(f"device {name!r} is not on this machine; here there is {', '.join(there)}")
    return name


@cache
def default_place() -> Place:
    """Choose once what `auto` stands for: the setting `device`, else the first device on which a small product runs.

    Raises KvvizError if the setting names a device that this machine lacks.
    """
    wanted = settings().device
    if wanted != "auto":
        return Place(pick_device(wanted))
    reasons: list[str] = []
    for device in devices():
        why = "" if device == "cpu" else _why_useless(device)
        if not why:
            return Place(device, " ".join(reasons) or (_unused_card() if device == "cpu" else ""))
        log.warning("%s", why)
        reasons.append(why)
    raise AssertionError("a CPU is always among the devices")


def _why_useless(device: str) -> str:
    """Run a product on a device and say why it fails; "" if it gives the right number.

    Its matrix is as large as those with which the device's rates are measured, so that a full card is noticed here.
    """
    try:
        weight = torch.ones(2048, 8192, device=device)
        if torch.nn.functional.linear(weight[:1], weight).sum().item() == 2048 * 8192:
            return ""
        why = "a product of ones comes out wrong"
    except Exception as error:  # no kernel for this card, no memory beside another process, a broken driver
        why = in_a_line(error)
    return f"kvviz computes on the processor, because {device_name(device)} does not work ({why})."


def _unused_card() -> str:
    card = seen_card() if sys.platform == "linux" else None
    return why_unused(card, torch.version.cuda) if card else ""


def device_name(device: str) -> str:
    """Return the hardware name of a device."""
    if device.startswith("cuda"):
        try:
            return torch.cuda.get_device_name(device)
        except (RuntimeError, AssertionError):  # the driver can't start this card, or torch knows no cards
            return device
    return processor_name()


def set_threads(count: int) -> None:
    """Compute with `count` threads in true float32; TF32 would blur the equivalence check."""
    torch.set_num_threads(max(1, count))
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


@contextmanager
def share_of_machine(threads: int | None = None) -> Iterator[None]:
    """Compute inside `with` on the cores and threads of a dashboard's worker, or with `threads` on any core.

    With as many threads as cores, each step waits for the thread whose core something else has taken.
    """
    pinned = hasattr(os, "sched_getaffinity")
    before, cores = torch.get_num_threads(), os.sched_getaffinity(0) if pinned else set()
    if threads is None:
        take_cores()
    else:
        set_threads(threads)
    try:
        yield
    finally:
        pin(sorted(cores))
        torch.set_num_threads(before)


def take_cores() -> None:
    """Take the cores and threads of a dashboard's worker for the rest of this process."""
    cores, _ = share_of_cores()
    pin(cores)
    set_threads(len(cores) or usable_cores() - 1)


def environment_for(attn: str, device: str, dtype: str) -> Environment:
    """Describe the environment that a measurement with this attention implementation depends on."""
    import transformers

    here, library = asdict(machine(device)), transformers.__version__
    return Environment(**here, dtype=dtype, attn_implementation=attn, transformers=library, worker=_called)


def be_called(name: str) -> None:
    """Note what a server with several workers calls this one: it stands in the environment of what it measures."""
    global _called
    _called = name or None


def named_worker() -> str | None:
    """Return what a server with several workers calls this one; None for a process on its own."""
    return _called


def machine(device: str) -> Machine:
    """Describe what the device's ceilings depend on, read from the running process."""
    return Machine(
        device=device,
        device_name=device_name(device),
        threads=torch.get_num_threads(),
        cores=usable_cores(),
        torch=torch.__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        **(_card_fields(device) if device.startswith("cuda") else {}),
    )


def about(device: str) -> dict[str, Any]:
    """Describe a device for planning work on it: its names, its memory in bytes, and of a card what drives it."""
    here, (free, total) = machine(device), device_memory(device)
    named = {name: getattr(here, name) for name in ("device", "device_name", "driver", "cuda", "capability")}
    return {**named, "free_bytes": free, "total_bytes": total}


@cache
def _card_fields(device: str) -> dict[str, str | None]:
    card, (major, minor) = seen_card(), torch.cuda.get_device_capability(device)
    return {"driver": card.driver if card else None, "cuda": torch.version.cuda, "capability": f"{major}.{minor}"}
