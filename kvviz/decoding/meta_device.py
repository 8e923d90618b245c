"""Forwards on the meta device: tensors without memory, and answers to what a forward asks of their values."""

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
    """Inside `with`, tensors are made without memory, and a forward that asks for values gets an answer."""
    before = fx_config.meta_nonzero_assume_all_nonzero
    fx_config.meta_nonzero_assume_all_nonzero = True
    try:
        with torch.device("meta"), _MetaAnswers(), torch.no_grad():
            yield
    finally:
        fx_config.meta_nonzero_assume_all_nonzero = before


class _MetaAnswers(TorchDispatchMode):
    """Answers a forward that asks for values, which a meta tensor does not have.

    A truth value is true, a count is 1, no index is found. That is enough, since only shapes are read.
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
    """Make a copy to the CPU, such as `tolist` asks for, all zeros."""
    if kwargs.get("device") != torch.device("cpu"):
        return func(tensor, **kwargs)
    return torch.zeros(tensor.shape, dtype=kwargs.get("dtype") or tensor.dtype, device="cpu")


def _split(func: OpOverload, tensor: torch.Tensor, sizes: Sequence[int], dim: int = 0) -> object:
    """Give everything to the first part if all sizes came from values, and so are zero."""
    return func(tensor, sizes if any(sizes) else [tensor.shape[dim], *sizes[1:]], dim)


def _grouped(
    func: OpOverload, left: torch.Tensor, right: torch.Tensor, *args: object, **kwargs: object
) -> torch.Tensor:
    """Multiply (rows, in) x (experts, in, out) in any precision; the kernel for meta takes bfloat16 alone."""
    return left.new_empty(*left.shape[:-1], right.shape[-1])


_ANSWERS: dict[str, Answer] = {
    "_local_scalar_dense": _scalar,
    "nonzero": lambda func, tensor: torch.empty(0, tensor.dim(), dtype=torch.int64, device="meta"),
    "equal": lambda func, tensor, other: True,
    "_to_copy": _copy,
    "split_with_sizes": _split,
    "_grouped_mm": _grouped,
}
