"""The spec of a serving run: a trace of requests through one model and one memory, under each of some policies."""

import math
from dataclasses import dataclass
from typing import ClassVar

from kvviz.base.errors import KvvizError
from kvviz.base.records import Sampling, check_whole
from kvviz.caches.block_table import BLOCK
from kvviz.experiments.batching.policies import PREEMPTIONS, THEIRS, Preemption, check_budget, policy_named
from kvviz.experiments.batching.trace import MOST_REQUESTS
from kvviz.experiments.comparison.spec import LIMITS, ComparisonSpec, comparison_like
from kvviz.experiments.kind import Spec

RANGES = {
    "places": (1, 64),
    "slots": (2 * BLOCK, 131_072),
    "budget": (2, 8_192),
    "shared": (0, 4_096),
    "alone": (0, MOST_REQUESTS),
    "seed": (0, 9_999),
}
LONGEST_S = 3_600  # of a trace, since each policy takes at least as long


@dataclass(frozen=True)
class BatchingSpec(Spec):
    """Requests that come at `arrivals_s`, with `prompts` tokens each, and want `answers` new ones.

    At most `places` run at once, in a memory of `slots` tokens; with chunks, a step computes at most `budget` tokens.
    The first `shared` tokens of all prompts are equal. `alone` requests are decoded alone as well, to compare tokens.
    With a `temperature` each request draws from a seed of its own. With `preemption` "swap", the host's memory has room
    for as many blocks again.
    """

    kind: ClassVar[str] = "batching"
    called: ClassVar[str] = "a serving run"
    modes: ClassVar[tuple[str, ...]] = ("paged",)

    model: str
    arrivals_s: tuple[float, ...]
    prompts: tuple[int, ...]
    answers: tuple[int, ...]
    policies: tuple[str, ...] = ("static", "continuous", "chunked")
    weights: str = "auto"
    places: int = 8
    slots: int = 4_096
    budget: int = 64
    shared: int = 0
    alone: int = 8
    temperature: float = 0.0
    seed: int = 0
    dtype: str = "float32"
    device: str = "auto"
    preemption: Preemption = "recompute"

    def __post_init__(self) -> None:
        for name, (least, most) in RANGES.items():
            check_whole(name, getattr(self, name), least, most)
        check_whole("requests", len(self.arrivals_s), 1, MOST_REQUESTS)
        if not len(self.arrivals_s) == len(self.prompts) == len(self.answers):
            raise KvvizError(
                "arrivals_s, prompts and answers have an entry for each request; here they are not equally long"
            )
        if not all(_is_time(at) for at in self.arrivals_s) or list(self.arrivals_s) != sorted(self.arrivals_s):
            raise KvvizError(
                f"arrivals_s are seconds from 0 to {LONGEST_S:,}, in order; take a shorter or faster trace"
            )
        for name in ("prompts", "answers"):
            for tokens in getattr(self, name):
                check_whole(name, tokens, 0, LIMITS["prompt_tokens"])
        if not self.policies or len(set(self.policies)) != len(self.policies):
            raise KvvizError("a serving run needs at least one policy, each named once, such as static,continuous")
        for name in self.policies:
            if name == THEIRS and self.temperature:
                raise KvvizError(f"{THEIRS} draws other random numbers: leave it out, or take a temperature of 0")
            if name != THEIRS:
                check_budget(policy_named(name), self.places, self.budget)
        if self.preemption not in PREEMPTIONS:
            raise KvvizError(f"no preemption {self.preemption!r}; it is {' or '.join(PREEMPTIONS)}")
        Sampling(temperature=self.temperature)
        self.work()

    @property
    def blocks(self) -> int:
        """Blocks of the memory."""
        return self.slots // BLOCK

    def work(self) -> ComparisonSpec:
        """The full memory as a comparison, to load the model and to check that it fits."""
        return comparison_like(self, prompt_tokens=-(-self.slots // self.places), new_tokens=1, batch=self.places)


def _is_time(at: object) -> bool:
    return isinstance(at, int | float) and not isinstance(at, bool) and math.isfinite(at) and 0 <= at <= LONGEST_S
