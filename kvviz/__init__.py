"""kvviz: see the KV cache work.

>>> from kvviz import compare, memory, watch
>>> compare("tiny-gpt2").figure()          # decode with and without the cache, and draw both curves
>>> memory("llama-3.1-8b", "deepseek-v3")  # what their caches take, side by side
>>> with watch(model) as trace:            # or watch a run of your own
...     model.generate(ids)
"""

import sys
from typing import Any

if sys.platform == "win32":  # a worker inherits its pipe as a file descriptor, and the device's lock is the kernel's
    raise ImportError("kvviz needs Linux or macOS; on Windows, run it in WSL (the Windows Subsystem for Linux)")

__version__ = "0.1.0"
__all__ = ["CacheMemory", "Comparison", "KvvizError", "Trace", "compare", "memory", "watch"]

_HOMES = {
    "CacheMemory": "notebook.memory",
    "Comparison": "notebook.compare",
    "KvvizError": "base.errors",
    "Trace": "notebook.watch",
    "compare": "notebook.compare",
    "memory": "notebook.memory",
    "watch": "notebook.watch",
}


def __getattr__(name: str) -> Any:
    """Names are imported when they are asked for: the server imports this package and must not import torch."""
    if name not in _HOMES:
        raise AttributeError(f"kvviz has no {name!r}; it has {', '.join(__all__)}")
    from importlib import import_module

    return getattr(import_module(f"kvviz.{_HOMES[name]}"), name)
