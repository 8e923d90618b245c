"""The spec of a look at what designs forget. Standard library only."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from kvviz.base.errors import KvvizError
from kvviz.base.records import check_whole
from kvviz.caches.designs import DESIGNS, tokens_of
from kvviz.experiments.comparison.spec import ComparisonSpec, comparison_like, pass_seconds
from kvviz.experiments.kind import Device, Estimate, Record, Spec
from kvviz.models.text import STORY

FORGETTING = tuple(name for name, design in DESIGNS.items() if design.budget)
BUDGETS = ("12%", "25%", "50%")  # at which quality is measured; the asked one is among them or beside them
MOST_TOKENS = 1024


@dataclass(frozen=True)
class ForgettingSpec(Spec):
    """A held-out text, read token by token by each of `designs` within a `budget`: "64" tokens, or "25%" of the text.

    The text ends after `tokens` tokens, if it is that long. As a `pyramid`, lower layers keep more than higher ones.
    """

    kind: ClassVar[str] = "forgetting"
    called: ClassVar[str] = "a look at what is forgotten"

    model: str
    designs: tuple[str, ...] = FORGETTING
    budget: str = "25%"
    tokens: int = 192
    weights: str = "auto"
    dtype: str = "float32"
    device: str = "auto"
    pyramid: bool = False

    def __post_init__(self) -> None:
        if not self.designs:
            raise KvvizError(f"choose at least one design that evicts of {', '.join(FORGETTING)}")
        for name in self.designs:
            if name not in FORGETTING:
                raise KvvizError(f"{name!r} is no design that evicts; there are {', '.join(FORGETTING)}")
        check_whole("tokens", self.tokens, 16, MOST_TOKENS)
        tokens_of(self.budget, self.tokens)
        self.work()  # ComparisonSpec checks the other fields

    @property
    def budgets(self) -> tuple[str, ...]:
        """All budgets at which quality is measured, the asked one first."""
        return tuple(dict.fromkeys((self.budget, *BUDGETS)))

    def work(self) -> ComparisonSpec:
        """The model and what decodes it, as a comparison."""
        return comparison_like(self, prompt=STORY, modes=("cached", *self.designs), new_tokens=1)


def estimate(spec: ForgettingSpec, device: Device, earlier: Sequence[Record] = ()) -> Estimate | None:
    """Estimate the seconds; None for a model of unknown size."""
    work = comparison_like(spec, prompt_tokens=1, modes=spec.designs, new_tokens=spec.tokens)
    passes = pass_seconds(work, device)
    return None if passes is None else Estimate(sum(passes.values()) * len(spec.budgets))
