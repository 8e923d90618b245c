"""Bytes of a cache: the formula, whose view of it, its explanation, what makes it smaller. No torch.

The package can be called: `kvviz.memory("llama-3.1-8b")` is `memory()` of kvviz/notebook/memory.py.
"""

import sys
from types import ModuleType
from typing import Any


class _Called(ModuleType):
    """Python binds `kvviz.memory` to this package once any of it is imported, so the call has to work on it."""

    def __call__(self, *models: Any, **case: Any) -> Any:
        """Work out the models' caches, for a notebook."""
        import kvviz

        return kvviz.__getattr__("memory")(*models, **case)


sys.modules[__name__].__class__ = _Called
