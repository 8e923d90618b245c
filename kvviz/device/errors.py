"""What went wrong on the device, as a sentence for whoever asked."""

import torch

from kvviz.base.words import human
from kvviz.device.memory import device_memory


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocator refused: Python's, CUDA's, the CPU's (a plain RuntimeError), or the system's (ENOMEM)."""
    words = ("can't allocate memory", "Cannot allocate memory", "bad_alloc")
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(word in str(error) for word in words)


def out_of_memory(error: Exception, device: str, doing: str) -> str:
    """The sentence for a refused allocation: the error's note (else `doing`) names the work; free bytes follow."""
    where = next(iter(getattr(error, "__notes__", ())), doing)
    return f"the device ran out of memory during {where} ({human(device_memory(device)[0])} are free now)"


def unexpected(error: Exception) -> str:
    """The sentence for an error that kvviz has no words for: its kind and its first line."""
    first = str(error).strip().splitlines()[:1]
    return f"the model could not be run ({type(error).__name__}{': ' + first[0][:200] if first else ''})"
