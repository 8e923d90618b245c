"""Count the multiply-adds of every matrix product that runs, by torch's own formulas."""

from collections.abc import Callable
from typing import Any

from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class MultiplyAdds(TorchDispatchMode):
    """Counts in `done` the multiply-adds of the matrix products inside `with`, which are half of torch's FLOPs.

    `operations` counts all that torch receives. The formulas are those of torch.utils.flop_counter. Torch's own counter
    also attributes the work to modules and takes fifty times as long.
    """

    def __init__(self) -> None:
        super().__init__()
        self.done = self.operations = 0

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        self.operations += 1
        out = func(*args, **(kwargs or {}))
        formula: Callable[..., int] | None = flop_registry.get(func.overloadpacket)
        if formula is not None:
            self.done += formula(*args, **(kwargs or {}), out_val=out) // 2
        return out
