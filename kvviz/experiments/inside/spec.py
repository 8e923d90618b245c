"""Defines the inspections of one decode: a layer, a mistake, the first steps. Standard library only."""

from dataclasses import dataclass
from typing import ClassVar

from kvviz.base.errors import KvvizError
from kvviz.base.records import check_whole
from kvviz.decoding.scratch.pitfalls import pitfall_named
from kvviz.experiments.comparison.spec import ComparisonSpec, comparison_like
from kvviz.experiments.kind import Spec

MOST_NEW = 48  # new tokens; a reader follows an inspection step by step
MOST_PROMPT = 48  # tokens
LAST_INDEX = 9_999  # of a layer or a head; the loaded model gives the real limit


@dataclass(frozen=True)
class DecodeInspection(Spec):
    """One decode by the transformer from scratch, with the weights of `model`."""

    modes: ClassVar[tuple[str, ...]] = ("scratch",)

    model: str
    prompt: str
    weights: str = "auto"
    new_tokens: int = 6

    def __post_init__(self) -> None:
        check_whole("new_tokens", self.new_tokens, 2, MOST_NEW)
        self.work()  # a comparison checks the model, its weights and the prompt

    def work(self) -> ComparisonSpec:
        """The decode as a comparison, to load its model and to check that it fits."""
        return comparison_like(self)


@dataclass(frozen=True)
class AnatomySpec(DecodeInspection):
    """An inspection of all numbers of one attention layer; of one group of heads only if all heads are too many."""

    kind: ClassVar[str] = "anatomy"
    called: ClassVar[str] = "an anatomy"

    layer: int = 0
    head: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("layer", self.layer, 0, LAST_INDEX)
        check_whole("head", self.head, 0, LAST_INDEX)


@dataclass(frozen=True)
class MistakeSpec(DecodeInspection):
    """An inspection of decodes with every mistake in turn, beside the right one; or with one of the clock alone."""

    kind: ClassVar[str] = "mistake"
    called: ClassVar[str] = "a decode with a mistake"

    clock: str | None = None  # the mistake of the clock, each of which takes seconds

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clock is not None and pitfall_named(self.clock).shows != "clock":
            raise KvvizError(
                f"clock is {self.clock!r}, which is no mistake of the clock; leave it out to make this one"
            )


@dataclass(frozen=True)
class FirstStepsSpec(Spec):
    """The attention-only decoder that precedes a whole transformer; it needs no trained model and no prompt."""

    kind: ClassVar[str] = "first-steps"
    called: ClassVar[str] = "a first-steps benchmark"
    TEMPERATURES: ClassVar[tuple[float, float]] = (0.1, 3.0)

    temperature: float = 1.0

    def __post_init__(self) -> None:
        least, most = self.TEMPERATURES
        known = isinstance(self.temperature, int | float) and not isinstance(self.temperature, bool)
        if not known or not least <= self.temperature <= most:
            raise KvvizError(f"temperature is {self.temperature!r}; it is a number from {least} to {most}")
