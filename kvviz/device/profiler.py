"""Divide the time of a forward by kind of work, with torch.profiler.

An operation's kind follows from its name and its scopes. While a profile is taken, the module marks attention modules,
rotary embeddings and the cache's update; it removes the marks afterwards. The profiler slows down what it observes, so
its seconds show shares, not speeds.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import torch
from torch import nn
from torch.profiler import ProfilerActivity, record_function
from torch.utils.hooks import RemovableHandle

from kvviz.device.clock import Sync

if TYPE_CHECKING:
    from torch.autograd.profiler_util import FunctionEvent

P = ParamSpec("P")
R = TypeVar("R")

CLASSES = ("weights", "attention", "cache", "other", "call", "gaps")
STEP, ATTENTION, ROTARY, CACHE, CALL = (f"kvviz::{n}" for n in ("step", "attention", "rotary", "cache", "call"))
_MODULES = {ATTENTION: re.compile(r"(Attention|Attn|Mixer|DeltaNet|SSM)\d*D?$"), ROTARY: re.compile("Rotary")}
_WEIGHTS = {"aten::linear", "aten::addmm", "aten::mm", "aten::conv1d", "aten::_grouped_mm", "aten::mv"}
_PRODUCTS = {"aten::matmul", "aten::bmm", "aten::baddbmm", "aten::einsum"}  # attention's, if it is not fused
_ATTENTION = {"aten::scaled_dot_product_attention", "aten::softmax"}


@dataclass(frozen=True)
class Operation:
    """One operation that Python started: its name, its scopes from the innermost out, its seconds."""

    name: str
    scopes: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Profile:
    """A profiled forward: `wall` is its seconds from start to end, and `classes` divides them by kind of work.

    `gaps` is the time without a running operation (on CUDA: without a running kernel), spent in Python and the
    framework. `classes` is empty if the profiler recorded no kernel, as on WSL: then nothing can be divided.
    """

    wall: float
    classes: dict[str, float]
    operations: int


def class_of(name: str, scopes: Sequence[str]) -> str:
    """Return the kind of work of an operation."""
    if name == CALL:
        return "call"
    if CACHE in scopes:
        return "cache"
    if name in _WEIGHTS:
        return "weights"
    if name in _ATTENTION or (name in _PRODUCTS and ATTENTION in scopes):
        return "attention"
    return "weights" if name in _PRODUCTS and ROTARY not in scopes else "other"


def divided(operations: Sequence[Operation], wall: float) -> dict[str, float]:
    """Sum the seconds by class; the gaps are the rest of the wall time."""
    found = dict.fromkeys(CLASSES, 0.0)
    for one in operations:
        found[class_of(one.name, one.scopes)] += one.seconds
    busy = sum(found.values())
    if busy > wall:  # rounding in the profiler can make the sum a little too large
        found = {name: seconds * wall / busy for name, seconds in found.items()}
    return {**found, "gaps": max(0.0, wall - busy)}


def profile(model: nn.Module, calls: Sequence[Callable[[], object]], device: str, sync: Sync) -> Profile:
    """Profile several calls of one forward each and return the one that took the least wall time.

    The profiler only adds time, and not evenly: the notes that it takes lie between the tensors on the heap, so a cache
    that is copied to append a row may find no freed block of its size, and waits for new pages. Each call has a
    profiler of its own, whose notes are freed, and the least time has least of this in it. torch's profiler records no
    kernels of MPS.
    """
    on_cuda = device.startswith("cuda")
    with scopes(model):
        wall, found = min((_profiled(call, sync, on_cuda) for call in calls), key=lambda taken: taken[0])
    blind = device != "cpu" and not any(one.seconds for one in found)
    return Profile(wall, {} if blind else divided(found, wall), len(found))


def _profiled(call: Callable[[], object], sync: Sync, on_cuda: bool) -> tuple[float, list[Operation]]:
    """Profile one call: its wall seconds and its operations."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_cuda else [])]
    with torch.profiler.profile(activities=activities) as watching, record_function(STEP):
        call()
        sync()
    (step,) = (event for event in watching.events() if event.name == STEP and event.device_type.name == "CPU")
    return step.time_range.elapsed_us() / 1e6, list(_operations(step, (), on_cuda))


def _operations(event: "FunctionEvent", around: tuple[str, ...], on_cuda: bool) -> Iterator[Operation]:
    """Yield the outermost operations below an event, skipping scopes; a step in one call is one operation."""
    for child in event.cpu_children:
        if child.name == CALL:
            yield Operation(child.name, around, child.time_range.elapsed_us() / 1e6)
        elif child.name.startswith("kvviz::"):
            yield from _operations(child, (child.name, *around), on_cuda)
        elif child.name.startswith("cuda"):
            continue  # the driver's own calls, such as waiting for the device, are no work of the forward
        else:
            micros = child.device_time_total if on_cuda else child.time_range.elapsed_us()
            yield Operation(child.name, around, micros / 1e6)


@contextmanager
def scopes(model: nn.Module) -> Iterator[None]:
    """Mark attention modules, rotary embeddings and the cache's update inside `with`."""
    from transformers.cache_utils import Cache

    with ExitStack() as stack:
        for module in model.modules():
            for scope, pattern in _MODULES.items():
                if pattern.search(type(module).__name__):
                    for handle in _marked(module, scope):
                        stack.callback(handle.remove)
        for name in ("update", "update_conv_state", "update_recurrent_state"):
            if hasattr(Cache, name):
                original = getattr(Cache, name)
                setattr(Cache, name, _scoped(original))
                stack.callback(setattr, Cache, name, original)
        yield


def _marked(module: nn.Module, scope: str) -> tuple[RemovableHandle, RemovableHandle]:
    open_: list[record_function] = []

    def enter(*_: object) -> None:
        open_.append(record_function(scope))
        open_[-1].__enter__()

    def leave(*_: object) -> None:
        open_.pop().__exit__(None, None, None)

    return module.register_forward_pre_hook(enter), module.register_forward_hook(leave, always_call=True)


def _scoped(method: Callable[P, R], scope: str = CACHE) -> Callable[P, R]:
    def scoped(*args: P.args, **kwargs: P.kwargs) -> R:
        with record_function(scope):
            return method(*args, **kwargs)

    return scoped


def as_one_call(step: Callable[P, R], sync: Sync) -> Callable[P, R]:
    """Mark a step whose operations can't be told apart, so that a profile counts it as one call.

    The device is waited for within the mark: a replayed graph works on after the call has returned.
    """

    def whole(*args: P.args, **kwargs: P.kwargs) -> R:
        result = step(*args, **kwargs)
        sync()
        return result

    return _scoped(whole, CALL)
