"""Read the environment of a measurement from the running process, and set the number of threads."""

import platform
from dataclasses import asdict

import torch

from kvviz.base.records import Environment
from kvviz.cost.ceilings import Machine
from kvviz.device.cores import usable_cores
from kvviz.device.pick import device_name


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
