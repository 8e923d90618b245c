"""NVTX ranges around prefills and decode steps, for nsys and ncu; only on CUDA and only if KVVIZ_NVTX=1 is set.

docs/profiling.md explains how to read them.
"""

import os
from collections.abc import Iterator
from typing import TypeVar

import torch

T = TypeVar("T")


def ranged(steps: Iterator[T], mode: str) -> Iterator[T]:
    """Put each step in a range `prefill.MODE` or `decode.MODE`; return the iterator unchanged if ranges are off."""
    asked = os.environ.get("KVVIZ_NVTX", "").strip().lower() not in ("", "0", "false", "no")
    return _ranged(steps, mode) if asked and torch.cuda.is_available() else steps


def _ranged(steps: Iterator[T], mode: str) -> Iterator[T]:
    phase = "prefill"
    while True:
        torch.cuda.nvtx.range_push(f"{phase}.{mode}")
        try:
            step = next(steps)
        except StopIteration:
            return
        finally:
            torch.cuda.nvtx.range_pop()
        yield step
        phase = "decode"
