"""Choose the device and the number of threads, and describe the environment that a measurement depends on."""

import platform
from dataclasses import asdict
from pathlib import Path

import torch

from kvviz.base.errors import KvvizError
from kvviz.base.records import Environment, Machine
from kvviz.device.cores import usable_cores


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


def set_threads(count: int) -> None:
    """Compute with `count` threads in true float32; TF32 would blur the equivalence check."""
    torch.set_num_threads(max(1, count))
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def environment_for(attn: str, device: str, dtype: str) -> Environment:
    """Describe the environment that a measurement with this attention implementation depends on."""
    import transformers

    here = asdict(machine(device))
    return Environment(**here, dtype=dtype, attn_implementation=attn, transformers=transformers.__version__)


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
    )
