"""The spec of a race of cache designs. Standard library only."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from kvviz.base.errors import KvvizError
from kvviz.base.records import check_whole
from kvviz.caches.designs import DESIGNS
from kvviz.experiments.comparison.spec import ComparisonSpec, comparison_like, pass_seconds
from kvviz.experiments.kind import Device, Estimate, Record, Spec
from kvviz.models.text import STORY

RACEABLE = (*DESIGNS, "static", "quantized")  # kvviz's own designs and two of transformers
RACED = tuple(  # unless asked
    name for name, design in DESIGNS.items() if not (design.accelerator or design.extra or design.asked)
)
REFERENCES = ("uncached", "cached")
MOST_RACED = 192  # most new tokens of a race
TEXT_TOKENS = 192  # length of the text that quality is measured on: three times the tokens that `sinks` holds


@dataclass(frozen=True)
class CachesSpec(Spec):
    """One prompt, decoded with each of `designs` and with REFERENCES.

    The `batch` sequences share the prompt and differ from the first token after it. `cache_budget` and `pyramid` are
    those of a comparison; of the text on which quality is measured, a percentage is that of the text.
    """

    kind: ClassVar[str] = "caches"
    called: ClassVar[str] = "a comparison of cache designs"

    model: str
    designs: tuple[str, ...] = RACED
    weights: str = "auto"
    prompt: str = STORY
    new_tokens: int = 64
    batch: int = 2
    repeats: int = 3
    dtype: str = "float32"
    device: str = "auto"
    cache_budget: str | None = None
    pyramid: bool = False

    def __post_init__(self) -> None:
        if not self.designs:
            raise KvvizError(f"choose at least one cache design of {', '.join(RACEABLE)}")
        for name in self.designs:
            if name not in RACEABLE:
                raise KvvizError(f"no cache design {name!r} to be compared; there are {', '.join(RACEABLE)}")
        check_whole("new_tokens", self.new_tokens, 2, MOST_RACED)
        self.work()  # ComparisonSpec checks the other fields

    @property
    def modes(self) -> tuple[str, ...]:
        """Modes to run: the references, then the designs."""
        return (*REFERENCES, *self.designs)

    def work(self) -> ComparisonSpec:
        """Return the race as a comparison of these modes."""
        return comparison_like(self)


def estimate(spec: CachesSpec, device: Device, earlier: Sequence[Record] = ()) -> Estimate | None:
    """Estimate the seconds of a race; None for a model of unknown size."""
    work = spec.work()
    passes = pass_seconds(work, device)
    forced = replace(work, prompt=None, prompt_tokens=1, new_tokens=TEXT_TOKENS, batch=1, modes=work.modes[1:])
    quality = pass_seconds(forced, device)
    if passes is None or quality is None:
        return None
    accounts = sum(passes[name] for name in spec.designs)
    return Estimate(sum(passes.values()) * (1 + spec.repeats) + accounts + sum(quality.values()))
