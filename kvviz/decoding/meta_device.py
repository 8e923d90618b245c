"""Run forwards on the meta device: tensors have no memory, and reads of their values get made-up answers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx.experimental import _config as fx_config
from torch.utils._python_dispatch import TorchDispatchMode

Answer = Callable[..., object]  # takes the operation and its arguments


@contextmanager
def on_meta() -> Iterator[None]:
    """Create tensors without memory inside `with`, and answer a forward that reads values."""
    before = fx_config.meta_nonzero_assume_all_nonzero
    fx_config.meta_nonzero_assume_all_nonzero = True
    try:
        with torch.device("meta"), _MetaAnswers(), torch.no_grad():
            yield
    finally:
        fx_config.meta_nonzero_assume_all_nonzero = before


class _MetaAnswers(TorchDispatchMode):
    """Answers a forward that reads values, which a meta tensor does not have.

    A truth value is true, a count is 1, no index is found. That suffices, because only shapes are read afterwards.
    """

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        name = func.overloadpacket.__name__
        if name in _ANSWERS and args and isinstance(args[0], torch.Tensor) and args[0].is_meta:
            return _ANSWERS[name](func, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _scalar(func: OpOverload, tensor: torch.Tensor) -> bool | int:
    return True if tensor.dtype is torch.bool else 1


def _copy(func: OpOverload, tensor: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    """Return zeros for a copy to the CPU, such as `tolist` makes."""
    if kwargs.get("device") != torch.device("cpu"):
        return func(tensor, **kwargs)
    return torch.zeros(tensor.shape, dtype=kwargs.get("dtype") or tensor.dtype, device="cpu")


def _split(func: OpOverload, tensor: torch.Tensor, sizes: Sequence[int], dim: int = 0) -> object:
    """Give everything to the first part if all sizes came from values and are therefore zero."""
    return func(tensor, sizes if any(sizes) else [tensor.shape[dim], *sizes[1:]], dim)


def _grouped(
    func: OpOverload, left: torch.Tensor, right: torch.Tensor, *args: object, **kwargs: object
) -> torch.Tensor:
    """Return an empty product of (rows, in) x (experts, in, out) in any dtype; torch's kernel takes only bfloat16."""
    return left.new_empty(*left.shape[:-1], right.shape[-1])


_ANSWERS: dict[str, Answer] = {
    "_local_scalar_dense": _scalar,
    "nonzero": lambda func, tensor: torch.empty(0, tensor.dim(), dtype=torch.int64, device="meta"),
    "equal": lambda func, tensor, other: True,
    "_to_copy": _copy,
    "split_with_sizes": _split,
    "_grouped_mm": _grouped,
}
