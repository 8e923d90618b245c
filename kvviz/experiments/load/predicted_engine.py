"""Serves requests by the cost model: the engine's own scheduler decides, and a step takes its predicted time.

A step whose sequences differ counts as one whose sequences are all alike: as many tokens together, and the same context
on average. The time of Python between two steps does not count. Nothing is computed here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kvviz.cost.blocks import Forward
from kvviz.cost.predict import Paces, forward_seconds
from kvviz.cost.shape import Shape
from kvviz.experiments.batching.batcher import Batcher, Plan
from kvviz.experiments.batching.batcher import Sequence as Running
from kvviz.experiments.batching.engine import Engine

Parts = Sequence[tuple[int, int]]  # of each sequence of a step: its first new token, and how many
ALIKE = 8  # contexts this near to one another have the same prediction


@dataclass
class CostModel:
    """Predicted seconds of an engine's steps on a device with these paces.

    `operations` is the number of a step of sequences with equally many new tokens, `more` that of each further number
    of new tokens, since attention goes over those with equally many at a time.
    """

    shape: Shape
    paces: Paces
    operations: int
    more: int
    queues: bool
    _known: dict[tuple[int, ...], float] = field(default_factory=dict, repr=False)

    def decode_step(self, sequences: int, context: int) -> float:
        """Seconds of a step of so many sequences, which makes each of them `context` tokens long."""
        return self._seconds(1, context - 1, sequences, self.operations)

    def step(self, parts: Parts) -> float:
        """Seconds of a step."""
        held = round(sum(start for start, _ in parts) / len(parts) / ALIKE) * ALIKE
        new = -(-sum(count for _, count in parts) // len(parts))
        operations = self.operations + self.more * (len({count for _, count in parts}) - 1)
        return self._seconds(new, held, len(parts), operations)

    def _seconds(self, new: int, held: int, sequences: int, operations: int) -> float:
        key = (new, held, sequences, operations)
        if key not in self._known:
            forward = Forward(new, held, sequences)
            self._known[key] = forward_seconds(self.shape, forward, self.paces, operations, queues=self.queues)
        return self._known[key]


class PredictedEngine(Engine):
    """An engine whose steps take the seconds that `seconds` says, by a clock of its own, `now`; each token is 0."""

    def __init__(self, batcher: Batcher, seconds: Callable[[Parts], float]) -> None:
        self.batcher, self.now = batcher, 0.0
        self._seconds = seconds

    def picture(self) -> dict[str, object]:
        """No picture: nothing lies in this memory."""
        return {}

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    def _compute(self, plan: Plan) -> dict[Running, int]:
        """Take the blocks of a plan, and let its predicted time pass."""
        for one, count in plan.parts.items():
            self.batcher.groups.append(one.place, one.ids[one.computed : one.computed + count])
        self.now += self._seconds([(one.computed, count) for one, count in plan.parts.items()])
        return {one: 0 for one, count in plan.parts.items() if one.pending == count}
