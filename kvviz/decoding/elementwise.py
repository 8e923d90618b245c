"""Count the elementwise operations of a forward, and measure how long they take at each number of rows.

Elementwise is here whatever is neither a product, nor attention, nor a view: norms, residual sums, rotary positions,
activations, concatenations, copies. They are read from a forward of a model of the same config on the meta device,
which has no memory and computes nothing. Each different operation is then timed alone, on tensors of ones, never in a
model.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import flop_registry

from kvviz.decoding.meta_model import on_meta
from kvviz.decoding.modes import mode_named
from kvviz.device.clock import Sync, median_call
from kvviz.device.memory import is_out_of_memory

if TYPE_CHECKING:
    from transformers import PreTrainedModel

log = logging.getLogger("kvviz.decoding.elementwise")

TRACED = (37, 74)  # tokens of the traced forwards; a size that differs between them grows with the tokens
PRODUCTS = {
    "linear",
    "matmul",
    "einsum",
    "conv1d",
    "scaled_dot_product_attention",
    *(op.__name__ for op in flop_registry),
}
ALIASES = {"detach_", "lift_fresh"}  # named like operations that write, but they only make another view
LONGEST = 0.3  # seconds; after a forward whose operations took this long, no larger number of rows is tried


@dataclass(frozen=True)
class _Tensor:
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


@dataclass
class Operation:
    """An elementwise operation of a forward: what it was called with over either of `TRACED` tokens, and how often."""

    func: OpOverload
    calls: tuple[Any, Any]
    count: int = 0

    def at(self, tokens: int, device: str) -> Callable[[], object]:
        """Return the operation over so many tokens, on tensors of ones."""
        args, kwargs = tree_map(lambda one, other: _made(one, other, tokens, device), *self.calls)
        return lambda: self.func(*args, **kwargs)


def operations_of(model: "PreTrainedModel") -> list[Operation]:
    """Count each different elementwise operation of an uncached forward of one sequence; `model` is on the meta device.

    Raises ValueError if the operations depend on the number of tokens in other ways than by their sizes.
    """
    one, other = (_traced(model, tokens) for tokens in TRACED)
    if [func for func, _ in one] != [func for func, _ in other]:
        raise ValueError("other operations for other numbers of tokens")
    found: dict[str, Operation] = {}
    for (func, call), (_, further) in zip(one, other, strict=True):
        found.setdefault(repr((func, call)), Operation(func, (call, further))).count += 1
    return [*found.values()]


def elementwise_seconds(
    operations: Sequence[Operation], device: str, sync: Sync, rows: Sequence[int]
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Measure the seconds that the operations of a forward take beyond those of one token, at each number of rows.

    What an operation takes for one token is its launch, which is counted elsewhere. Where the memory is too small for
    more rows, the numbers of rows end. Raises ValueError for an operation that can't be timed alone.
    """
    took = list[float]()
    for number in rows:
        try:
            took.append(sum(one.count * _seconds(one, number, device, sync) for one in operations))
        except Exception as error:
            if not took or not is_out_of_memory(error):
                raise
            log.warning("elementwise work on %s rows does not fit into the memory of %s", number, device)
            break
        if took[-1] > LONGEST:
            break
    return tuple(rows[: len(took)]), tuple(max(0.0, seconds - took[0]) for seconds in took)


def _seconds(operation: Operation, rows: int, device: str, sync: Sync) -> float:
    try:
        return median_call(operation.at(rows, device), sync)
    except NotImplementedError:  # no step on this device makes it: on a processor experts are counted in another way
        log.info("%s counts 0 s, because %s has no such operation", operation.func, device)
        return 0.0
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise ValueError(f"{operation.func} can't be timed alone ({type(error).__name__})") from error


class _Trace(TorchDispatchMode):
    """Records the elementwise operations inside `with`, with the sizes of what they were called with."""

    def __init__(self, model: "PreTrainedModel", tokens: int) -> None:
        super().__init__()
        self._weights = {_storage(weight) for weight in model.parameters() if weight.dim() > 1}
        self._tokens = tokens
        self.found: list[tuple[OpOverload, Any]] = []

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        if func.overloadpacket.__name__ in ("is_nonzero", "item"):  # a value of the positions, such as whether one text
            return True  # fills each row
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        call = tree_map(_described, (args, kwargs or {}))
        out = func(*args, **(kwargs or {}))
        if self._computes(func, given, out):
            self.found.append((func, call))
        return out

    def _computes(self, func: OpOverload, given: Sequence[torch.Tensor], out: object) -> bool:
        """Whether it is elementwise: no product, no lookup in a table of weights, no attention's square, no view."""
        name, made = func.overloadpacket.__name__, [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        if name in PRODUCTS or name in ALIASES or not made:
            return False
        storages = {_storage(tensor) for tensor in given}
        square = any(list(tensor.shape).count(self._tokens) > 1 for tensor in (*given, *made))
        view = not func._schema.is_mutable and all(_storage(tensor) in storages for tensor in made)
        return not (square or view or storages & self._weights)


@torch.inference_mode()
def _traced(model: "PreTrainedModel", tokens: int) -> list[tuple[OpOverload, Any]]:
    with on_meta():
        ids = torch.zeros(1, tokens, dtype=torch.long)
        forward = mode_named("uncached").open(model, tokens)
        with _Trace(model, tokens) as trace:
            forward(ids, ids)
    return trace.found


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _described(leaf: object) -> object:
    return _Tensor(tuple(leaf.shape), leaf.stride(), leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf


def _made(one: object, other: object, tokens: int, device: str) -> object:
    """Make an operation's argument for `tokens` tokens from its arguments in two traces of other lengths."""
    if isinstance(one, _Tensor) and isinstance(other, _Tensor):
        shape, stride = (
            [_sized(a, b, tokens) for a, b in zip(first, second, strict=True)]
            for first, second in ((one.shape, other.shape), (one.stride, other.stride))
        )
        whole = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
        make = torch.ones if one.dtype.is_floating_point else torch.zeros
        return make(max(0, whole), dtype=one.dtype, device=device).as_strided(shape, stride)
    if isinstance(one, int) and isinstance(other, int) and not isinstance(one, bool):
        return _sized(one, other, tokens)
    return torch.device(device) if isinstance(one, torch.device) else one


def _sized(one: int, other: int, tokens: int) -> int:
    """The size that is `one` and `other` over the traced numbers of tokens: linear in their number."""
    first, second = TRACED
    return one + (other - one) * (tokens - first) // (second - first)
