"""Multiply-adds as they are done: counted at every matrix product that runs, by torch's own formulas."""

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class MultiplyAdds(TorchDispatchMode):
    """Inside `with`, counts the multiply-adds of matrix products, half of what torch calls FLOP, in `done`.

    The formulas are those of torch.utils.flop_counter, whose own counter also tells which module did the work, and
    takes fifty times as long for it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.done = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        formula: Callable[..., int] | None = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.done += formula(*args, **(kwargs or {}), out_val=out) // 2
        return out
