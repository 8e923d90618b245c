"""Turn errors of the device into sentences for the user."""

import torch

from kvviz.base.errors import in_a_line
from kvviz.base.words import human
from kvviz.device.memory import device_memory


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed: in Python, on CUDA, on the CPU (a plain RuntimeError) or in the system (ENOMEM)."""
    words = ("can't allocate memory", "Cannot allocate memory", "bad_alloc")
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(word in str(error) for word in words)


def out_of_memory(error: Exception, device: str, doing: str) -> str:
    """Describe a failed allocation: what was running (the error's note, else `doing`) and the free bytes."""
    where = next(iter(getattr(error, "__notes__", ())), doing)
    return f"the device ran out of memory during {where} ({human(device_memory(device)[0])} are free now)"


def unexpected(error: Exception) -> str:
    """Describe an error that kvviz does not know, by its type and its first line."""
    return f"the model could not be run ({in_a_line(error)})"
