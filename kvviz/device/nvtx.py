"""NVTX ranges around prefills and decode steps, for nsys and ncu; only on CUDA and only if KVVIZ_NVTX=1 is set.

docs/profiling.md explains how to read them. This module imports torch only when a function is called.
"""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from types import ModuleType

T = TypeVar("T")


def asked() -> bool:
    """Whether the environment asks for ranges and this machine has a CUDA device."""
    if os.environ.get("KVVIZ_NVTX", "").strip().lower() in ("", "0", "false", "no"):
        return False
    import torch

    return torch.cuda.is_available()


def ranged(steps: Iterator[T], mode: str) -> Iterator[T]:
    """Put each step in a range `prefill.MODE` or `decode.MODE`; return the iterator unchanged if ranges are off."""
    if not asked():
        return steps
    import torch

    return _ranged(steps, mode, torch.cuda.nvtx)


def _ranged(steps: Iterator[T], mode: str, nvtx: "ModuleType") -> Iterator[T]:
    phase = "prefill"
    while True:
        nvtx.range_push(f"{phase}.{mode}")
        try:
            step = next(steps)
        except StopIteration:
            return
        finally:
            nvtx.range_pop()
        yield step
        phase = "decode"
