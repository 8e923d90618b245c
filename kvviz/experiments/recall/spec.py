"""The spec of a recall measurement. Standard library only."""

from dataclasses import dataclass
from typing import ClassVar

from kvviz.base.errors import KvvizError
from kvviz.base.records import check_whole, is_whole
from kvviz.caches.designs import DESIGNS
from kvviz.experiments.comparison.spec import ComparisonSpec, comparison_like
from kvviz.experiments.kind import Spec

MODEL = "mini-recall"  # trained for this task
FORGETFUL = tuple(name for name, design in DESIGNS.items() if not design.exact and not design.accelerator)
ASKING = 24  # most tokens of a question and its answer
TEXTS_BEFORE = 2  # of each seed, whose questions are also asked before the cache shrinks; each takes a prefill
RANGES = {"tokens": (128, 16_384), "texts": (1, 50), "facts": (1, 16), "seeds": (1, 10)}


@dataclass(frozen=True)
class RecallSpec(Spec):
    """Texts of `tokens` tokens that state `facts` facts each, and a question about each fact after its text.

    Each of `seeds` seeds draws `texts` texts. Each design that has a budget gets each of `budgets`, in percent of the
    text's tokens. With a budget of `before` percent, the questions of each seed's first TEXTS_BEFORE texts are asked
    before the cache shrinks, too.
    """

    kind: ClassVar[str] = "recall"
    called: ClassVar[str] = "a recall measurement"

    model: str = MODEL
    designs: tuple[str, ...] = FORGETFUL
    budgets: tuple[int, ...] = (10, 25, 50, 75)
    weights: str = "auto"
    tokens: int = 1_000
    texts: int = 8
    facts: int = 12
    seeds: int = 3
    dtype: str = "float32"
    device: str = "auto"
    before: int | None = 25

    def __post_init__(self) -> None:
        for name, (least, most) in RANGES.items():
            check_whole(name, getattr(self, name), least, most)
        for name in self.designs:
            if name not in FORGETFUL:
                raise KvvizError(f"{name!r} is no lossy cache design; there are {', '.join(FORGETFUL)}")
        if not self.designs or not self.budgets:
            raise KvvizError("a recall measurement needs a cache design and a budget")
        asked = (*self.budgets, *(() if self.before is None else (self.before,)))
        if not all(is_whole(budget, 1) and budget <= 100 for budget in asked):
            raise KvvizError(f"a budget is a percentage of the text's tokens from 1 to 100, not {asked}")
        self.work()  # ComparisonSpec checks the other fields

    @property
    def modes(self) -> tuple[str, ...]:
        """The full cache, which is the ceiling, and the designs."""
        return ("cached", *self.designs)

    def work(self) -> ComparisonSpec:
        """One text and its longest question as a comparison, to load the model and to check that they fit."""
        return comparison_like(self, prompt_tokens=self.tokens, new_tokens=ASKING, repeats=self.seeds)
