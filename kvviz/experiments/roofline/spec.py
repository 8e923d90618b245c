"""What a roofline is asked for with: which prefills and decode steps of one model are timed. Standard library only."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from kvviz.base.errors import KvvizError
from kvviz.base.records import is_whole
from kvviz.base.settings import Limits
from kvviz.cost.flops import estimated
from kvviz.cost.roofline import DECODE, PREFILL, WARMUP, Place, Roof, countable, repeats, work_of
from kvviz.cost.shape import Shape
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.kind import Device, DeviceRates, Estimate, Record, Spec
from kvviz.experiments.limits import check_decodable
from kvviz.models.sources import find_source

SHORTEST = 16  # tokens: where the ladder of lengths begins
SHORT = 32  # tokens of the shorter context that is decoded in growing batches
REACH = 8  # positions beyond the longest context that timed steps come to


@dataclass(frozen=True)
class RoofSpec(Spec):
    """Prefills and decode steps of one model, timed from SHORTEST to `tokens` tokens and up to `batch` sequences."""

    kind: ClassVar[str] = "roofline"
    called: ClassVar[str] = "a look at the roofline"

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
    def modes(self) -> tuple[str, ...]:
        """How it is decoded."""
        return ("cached",)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of the prompts, and of the contexts of single sequences: doubling, the longest as asked."""
        return _doubling(SHORTEST, self.tokens)

    @property
    def batches(self) -> tuple[int, ...]:
        """Sequences that are decoded together: doubling, the most as asked."""
        return _doubling(1, self.batch)

    def work(self) -> ComparisonSpec:
        """The longest decode as a comparison, for whoever loads its model and looks whether it fits."""
        return ComparisonSpec(
            model=self.model,
            weights=self.weights,
            prompt_tokens=self.tokens,
            new_tokens=REACH,
            batch=self.batch,
            dtype=self.dtype,
            device=self.device,
            modes=self.modes,
        )


def _doubling(first: int, last: int) -> tuple[int, ...]:
    found = []
    while first < last:
        found.append(first)
        first *= 2
    return (*found, last)


def places(spec: RoofSpec) -> tuple[Place, ...]:
    """All forwards that are timed: prefills, steps at growing contexts, steps of growing batches at two contexts."""
    single = [Place(phase, tokens) for phase in (PREFILL, DECODE) for tokens in spec.lengths]
    wide = [Place(DECODE, tokens, batch) for tokens in (SHORT, spec.tokens) for batch in spec.batches[1:]]
    return (*single, *wide)


def foreseen(shape: Shape, spec: RoofSpec, rates: DeviceRates) -> float:
    """Seconds that the whole ladder will take, by estimate: every pass at the device's measured rates.

    The prefills that fill a decode's cache are among them; twice as much again for what neither rate tells of, and
    some seconds for the ceilings and the profiles.
    """
    roof = Roof(rates["read"], rates["flops"])
    total = 0.0
    for place in places(spec):
        least = work_of(shape, place, spec.dtype).least(roof)
        total += (WARMUP + repeats(place, least)) * least
        if place.phase == DECODE:
            total += work_of(shape, Place(PREFILL, place.tokens), spec.dtype).least(roof)
    return 3 * total + 6.0


def check(spec: RoofSpec, limits: Limits) -> None:
    """Refuse a model that is not there, can't be counted or is too large for this server."""
    source = check_decodable(spec, limits)
    if source.config is not None:
        countable(source.config, source.title)


def estimate(spec: RoofSpec, device: Device, earlier: Sequence[Record] = ()) -> Estimate | None:
    """Seconds of the whole ladder; None for a model that can't be counted."""
    shape = estimated(find_source(spec.model, spec.weights).config)
    return Estimate(foreseen(shape, spec, device["rates"])) if shape else None
