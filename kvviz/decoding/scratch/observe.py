"""Looking over attention's shoulder: every q, k, v, score, weight and output of any layer, as the lines run.

Python's own line tracing tells which line has run, `listing` which stage that was; so the code that is read in class
holds nothing for whoever watches, and costs nothing when nobody does.
"""

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from kvviz.decoding.scratch.attention import Attention
from kvviz.decoding.scratch.listing import Stage, listing
from kvviz.decoding.scratch.model import Transformer

Seen = dict[int, dict[str, dict[str, Any]]]


@contextmanager
def observed(model: Transformer, layers: Collection[int] | None = None) -> Iterator[Seen]:
    """Inside `with`, note what each stage of attention makes: seen[layer]["softmax"]["weights"] is (B, H, T, T_total).

    Of all layers or of some; of the last forward where there are several, its stages in the order in which they ran.
    A forward that fails leaves the stages before the one that it failed in. The tensors are the run's own, not
    copies. Only forwards of this thread are seen.
    """
    wanted = range(len(model.blocks)) if layers is None else layers
    watcher = _Watcher({id(model.blocks[layer].attention): layer for layer in wanted})
    before = sys.gettrace()
    sys.settrace(watcher.called)
    try:
        yield watcher.seen
    finally:
        sys.settrace(before)


def of_head(stages: dict[str, dict[str, Any]], head: int) -> dict[str, Any]:
    """What one query head had before it and made of it, from what was seen of its layer.

    q and output (B, T, D), keys and values (B, T_total, D), scores and weights (B, T, T_total); the scores as the
    softmax met them, -inf where the mask said no.
    """
    places = {
        "q": ("turn", "q"),
        "keys": ("share", "keys"),
        "values": ("share", "values"),
        "scores": ("mask", "masked"),
        "weights": ("softmax", "weights"),
        "output": ("mix", "mixed"),
    }
    return {name: stages[stage][value][:, head] for name, (stage, value) in places.items()}


class _Watcher:
    def __init__(self, layers: dict[int, int]) -> None:
        self.seen: Seen = {}
        self._layers = layers
        self._running: Stage | None = None

    def called(self, frame: FrameType, event: str, arg: Any) -> Any:
        """A function is called: its lines are of interest if it is the attention of a wanted layer."""
        if frame.f_code is not Attention.forward.__code__:
            return None
        layer = self._layers.get(id(frame.f_locals["self"]))
        if layer is None:
            return None
        self.seen[layer], self._running = {}, None
        return self._at(layer)

    def _at(self, layer: int) -> Any:
        def line(frame: FrameType, event: str, arg: Any) -> Any:
            """A line is about to run, or the function ends: then what ran before it is done."""
            if event == "exception":
                self._running = None
            upcoming = listing().at(frame.f_lineno) if event == "line" else None
            if self._running is not None and upcoming is not self._running:
                made = frame.f_locals if event == "line" else dict.fromkeys(self._running.makes, arg)
                self.seen[layer][self._running.name] = {name: made[name] for name in self._running.makes}
            self._running = upcoming
            return line

        return line
