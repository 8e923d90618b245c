"""Defines a roofline: which prefills and decode steps of one model it times. Standard library only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from kvviz.base.errors import KvvizError
from kvviz.base.records import is_whole
from kvviz.base.settings import Limits
from kvviz.cost.flops import estimated
from kvviz.cost.roofline import DECODE, PREFILL, WARMUP, Place, Roof, countable, repeats, work_of
from kvviz.cost.shape import Shape
from kvviz.experiments.comparison.spec import ComparisonSpec, comparison_like
from kvviz.experiments.kind import Device, Estimate, Record, Spec
from kvviz.experiments.limits import check_decodable
from kvviz.models.sources import find_source

SHORTEST = 16  # tokens of the shortest prompt and context
SHORT = 32  # tokens of the shorter of the two contexts at which the batch grows
REACH = 8  # positions that the timed steps need beyond the longest context


@dataclass(frozen=True)
class RoofSpec(Spec):
    """Prefills and decode steps of one model, timed from SHORTEST to `tokens` tokens and up to `batch` sequences."""

    kind: ClassVar[str] = "roofline"
    modes: ClassVar[tuple[str, ...]] = ("cached",)
    called: ClassVar[str] = "a roofline measurement"

    model: str
    weights: str = "auto"
    tokens: int = 512
    batch: int = 16
    dtype: str = "float32"
    device: str = "auto"

    def __post_init__(self) -> None:
        if not is_whole(self.tokens, 2 * SHORT):
            raise KvvizError(f"tokens is {self.tokens!r}; it is a whole number of at least {2 * SHORT}")
        self.work()  # checks the rest

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of the prompts and single-sequence contexts, doubling from SHORTEST up to `tokens`."""
        return _doubling(SHORTEST, self.tokens)

    @property
    def batches(self) -> tuple[int, ...]:
        """Batch sizes of the decode steps, doubling from 1 up to `batch`."""
        return _doubling(1, self.batch)

    def work(self) -> ComparisonSpec:
        """The longest decode as a comparison, to load its model and to check that it fits."""
        return comparison_like(self, prompt_tokens=self.tokens, new_tokens=REACH)


def _doubling(first: int, last: int) -> tuple[int, ...]:
    return (first, *_doubling(2 * first, last)) if first < last else (last,)


def places(spec: RoofSpec) -> tuple[Place, ...]:
    """List the timed forwards: prefills, steps at growing contexts, and steps of growing batches at two contexts."""
    single = [Place(phase, tokens) for phase in (PREFILL, DECODE) for tokens in spec.lengths]
    wide = [Place(DECODE, tokens, batch) for tokens in (SHORT, spec.tokens) for batch in spec.batches[1:]]
    return (*single, *wide)


def foreseen(shape: Shape, spec: RoofSpec, rates: Mapping[str, float]) -> float:
    """Estimate the seconds of the whole experiment from the device's measured rates.

    The estimate includes the prefills that fill a decode's cache. It triples the sum for costs that the rates do not
    cover and adds 6 s for the ceilings and the profiles.
    """
    roof = Roof(rates["read"], rates["flops"])
    total = 0.0
    for place in places(spec):
        least = roof.least(work_of(shape, place, spec.dtype))
        total += (WARMUP + repeats(place, least)) * least
        if place.phase == DECODE:
            total += roof.least(work_of(shape, Place(PREFILL, place.tokens), spec.dtype))
    return 3 * total + 6.0


def check(spec: RoofSpec, limits: Limits) -> None:
    """Refuse a model that does not exist, whose work can't be counted or that exceeds this server's limits."""
    source = check_decodable(spec, limits)
    if source.config is not None:
        countable(source.config, source.title)


def estimate(spec: RoofSpec, device: Device, earlier: Sequence[Record] = ()) -> Estimate | None:
    """Estimate the whole experiment; None for a model whose work can't be counted."""
    shape = estimated(find_source(spec.model, spec.weights).config)
    return Estimate(foreseen(shape, spec, device["rates"])) if shape else None
