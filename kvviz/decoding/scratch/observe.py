"""Observe attention at work: every q, k, v, score, weight and output of any layer, as the lines run.

Python's own line tracing tells which line has run, and `listing` which stage that was.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from torch import Tensor, nn

from kvviz.decoding.scratch.attention import Attention
from kvviz.decoding.scratch.listing import Listing, Stage, listing
from kvviz.decoding.scratch.model import Transformer

Stages = dict[str, dict[str, Tensor]]  # the tensors that each stage makes, by name
Seen = dict[int, Stages]  # by layer
Tracer = Callable[[FrameType, str, Any], Any]  # what `sys.settrace` takes: it returns a tracer of the function's lines


@contextmanager
def observed(model: Transformer, layers: Collection[int] | None = None) -> Iterator[Seen]:
    """Inside `with`, note what each stage of attention makes: seen[layer]["softmax"]["weights"] is (B, H, T, T_total).

    Of several forwards it keeps the last one's stages, in the order in which they ran; of one that fails, the stages
    before the failure. The tensors are the run's own, not copies. It sees only the forwards of this thread.
    """
    wanted = range(len(model.blocks)) if layers is None else layers
    with watched({layer: model.blocks[layer].attention for layer in wanted}, Attention, listing()) as seen:
        yield seen


@contextmanager
def watched(layers: Mapping[int, object], kind: type[nn.Module], source: Listing) -> Iterator[Seen]:
    """The same for these layers by number, of one `kind`, whose forward is `source`."""
    numbers = {id(module): layer for layer, module in layers.items()}
    seen: Seen = {}

    def called(frame: FrameType, event: str, arg: object) -> Tracer | None:
        """Trace the lines of a called function if it is the forward of one of the layers."""
        forward = frame.f_code is kind.forward.__code__
        layer = numbers.get(id(frame.f_locals["self"])) if forward else None
        if layer is None:
            return None
        seen[layer] = {}
        return _lines(seen[layer], source)

    before = sys.gettrace()
    sys.settrace(called)
    try:
        yield seen
    finally:
        sys.settrace(before)


def _lines(stages: Stages, source: Listing) -> Tracer:
    """Make the tracer of one forward, which puts the results of its stages into `stages`."""
    running: Stage | None = None

    def line(frame: FrameType, event: str, arg: object) -> Tracer:
        """A line is about to run, or the function ends: note the results of the stage that has ended."""
        nonlocal running
        if event == "exception":
            running = None
        upcoming = source.at(frame.f_lineno) if event == "line" else None
        if running is not None and upcoming is not running:
            made: Mapping[str, Any] = frame.f_locals if event == "line" else dict.fromkeys(running.makes, arg)
            stages[running.name] = {name: made[name] for name in running.makes}
        running = upcoming
        return line

    return line
