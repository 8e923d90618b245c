"""NVTX ranges around prefills and decode steps, for nsys and ncu: only on CUDA, and only where KVVIZ_NVTX=1 asks.

Standard library; torch when called. docs/profiling.md says how to read them.
"""

import os
from collections.abc import Iterator
from typing import Any


def asked() -> bool:
    """Whether the environment asks for ranges and there is a device that can show them."""
    if os.environ.get("KVVIZ_NVTX", "").strip().lower() in ("", "0", "false", "no"):
        return False
    import torch

    return torch.cuda.is_available()


def ranged(steps: Iterator[Any], mode: str) -> Iterator[Any]:
    """The steps, each in a range `prefill.MODE` or `decode.MODE`; the very same iterator where none are asked for."""
    if not asked():
        return steps
    import torch

    return _ranged(steps, mode, torch.cuda.nvtx)


def _ranged(steps: Iterator[Any], mode: str, nvtx: Any) -> Iterator[Any]:
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
