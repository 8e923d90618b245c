"""Defines a load sweep: the same requests at growing rates of arrival, through one engine. Standard library only."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from kvviz.base.errors import KvvizError
from kvviz.base.records import check_whole
from kvviz.experiments.batching.policies import THEIRS, policy_named
from kvviz.experiments.batching.spec import BatchingSpec
from kvviz.experiments.batching.trace import MOST_REQUESTS, Trace, draw_trace
from kvviz.experiments.comparison.spec import ComparisonSpec, pass_seconds
from kvviz.experiments.kind import Device, Estimate, Record, Spec
from kvviz.experiments.load.rates import HALVINGS, passes

LEAST = 4  # requests for each place: with fewer, the queue has no time to grow
SLOWEST, FASTEST, MOST_RATES = 0.001, 1e5, 24
SECONDS = (5, 3_600)


@dataclass(frozen=True)
class LoadSpec(Spec):
    """`requests` drawn once, of at most `longest` tokens each, served at one rate of arrival after another.

    At most `places` run at once under `policy`, in a memory of `slots` tokens; with chunks, a step computes at most
    `budget` tokens. Without `rates` (requests a second) the run finds them, within `seconds` seconds; it may take
    fewer requests, the first ones, so that the time is enough.
    """

    kind: ClassVar[str] = "load"
    called: ClassVar[str] = "a load sweep"
    modes: ClassVar[tuple[str, ...]] = ("paged",)

    model: str
    weights: str = "auto"
    policy: str = "continuous"
    rates: tuple[float, ...] = ()
    seconds: int = 20
    requests: int = 160
    longest: int = 192
    places: int = 16
    slots: int = 4_096
    budget: int = 64
    seed: int = 5
    dtype: str = "float32"
    device: str = "auto"

    def __post_init__(self) -> None:
        check_whole("seconds", self.seconds, *SECONDS)
        check_whole("longest", self.longest, 2, self.slots)
        if self.policy == THEIRS:
            raise KvvizError(f"{THEIRS} tells nothing of its steps: take one of this engine's policies")
        policy_named(self.policy)
        if len(self.rates) > MOST_RATES or not all(_is_rate(rate) for rate in self.rates):
            raise KvvizError(
                f"rates are at most {MOST_RATES} numbers of requests a second, from {SLOWEST:g} to {FASTEST:,.0f}"
            )
        if list(self.rates) != sorted(set(self.rates)):
            raise KvvizError("rates grow from one to the next, such as 10,20,40")
        check_whole("requests", self.requests, self.least, MOST_REQUESTS)
        self.serving  # noqa: B018, it checks the rest

    @property
    def least(self) -> int:
        """The fewest requests that can tell whether a queue grows."""
        return LEAST * self.places

    @cached_property
    def trace(self) -> Trace:
        """The requests, at one a second on average."""
        return draw_trace(self.requests, 1.0, self.longest, self.seed)

    @cached_property
    def serving(self) -> BatchingSpec:
        """All requests as a serving run, at one a second."""
        trace = self.trace
        return BatchingSpec(
            model=self.model,
            arrivals_s=trace.arrivals_s,
            prompts=trace.prompts,
            answers=trace.answers,
            policies=(self.policy,),
            weights=self.weights,
            places=self.places,
            slots=self.slots,
            budget=self.budget,
            seed=self.seed,
            dtype=self.dtype,
            device=self.device,
        )

    def work(self) -> ComparisonSpec:
        """The full memory as a comparison, to load the model and to check that it fits."""
        return self.serving.work()


def _is_rate(rate: object) -> bool:
    return isinstance(rate, int | float) and not isinstance(rate, bool) and SLOWEST <= rate <= FASTEST


def estimate(spec: LoadSpec, device: Device, earlier: Sequence[Record] = ()) -> Estimate | None:
    """At most the seconds of all passes, within the budget; None if the model's size is unknown."""
    trace = spec.trace
    prompt, answer = (max(1, sum(tokens) // len(tokens)) for tokens in (trace.prompts, trace.answers))
    together = pass_seconds(replace(spec.work(), prompt_tokens=prompt, new_tokens=answer), device)
    if together is None:
        return None
    each = sum(together.values()) / spec.places  # seconds of a request where all places are taken
    often = 1 + sum(max(1.0, 1 / (rate * each)) for rate in spec.rates) if spec.rates else passes(HALVINGS)
    return Estimate(min(float(spec.seconds), spec.requests * each * often))
