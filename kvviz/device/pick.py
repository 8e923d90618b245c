"""Choose the device and name it."""

import platform
from pathlib import Path

import torch

from kvviz.base.errors import KvvizError


def pick_device(name: str = "auto") -> str:
    """Resolve `auto` to CUDA, else MPS, else the CPU. Raises KvvizError for a device that this machine lacks."""
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return next(kind for kind, is_there in present.items() if is_there)
    if not present.get(name.split(":")[0]):
        there = ", ".join(kind for kind, is_there in present.items() if is_there)
        raise KvvizError(f"device {name!r} is not on this machine; here there is {there}")
    return name


def device_name(device: str) -> str:
    """Return the hardware name of a device."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
