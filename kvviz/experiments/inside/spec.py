"""What a look inside one decode is asked for with: a layer, a mistake, the first steps. Standard library only."""

from dataclasses import dataclass
from typing import ClassVar

from kvviz.base.errors import KvvizError
from kvviz.base.records import is_whole
from kvviz.decoding.scratch.pitfalls import pitfall_named
from kvviz.experiments.comparison.spec import WEIGHTS, ComparisonSpec
from kvviz.experiments.kind import Spec

KINDS = ("anatomy", "mistake", "first-steps")
MOST_NEW = 48  # decode steps; a look is for reading, not for measuring
MOST_PROMPT = 48  # tokens


@dataclass(frozen=True)
class LookSpec(Spec):
    """One attention layer of a decode (`anatomy`: `layer`, `head`), or a decode with a mistake in it (`mistake`).

    Or the decoder of attention alone that comes before a whole one (`first-steps`), which has no model and no prompt.
    """

    called: ClassVar[str] = "a look"

    kind: str
    model: str = ""
    prompt: str = ""
    weights: str = "auto"
    new_tokens: int = 6
    layer: int = 0
    head: int = 0
    mistake: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise KvvizError(f"a look is one of {', '.join(KINDS)}, not {self.kind!r}")
        if self.weights not in WEIGHTS:
            raise KvvizError(f"weights is {self.weights!r}; it is one of {', '.join(WEIGHTS)}")
        for name, least, most in (("new_tokens", 2, MOST_NEW), ("layer", 0, 9_999), ("head", 0, 9_999)):
            value = getattr(self, name)
            if not is_whole(value, least, most):
                words = name.replace("_", " ")
                raise KvvizError(f"{words} is {value!r}; it is a whole number from {least} to {most}")
        if (self.kind == "mistake") != bool(self.mistake):
            raise KvvizError("a look at a mistake names it, and a look at a layer names none")
        if self.mistake:
            pitfall_named(self.mistake)
        if self.kind != "first-steps":
            self.work()  # checks what the two have in common

    @property
    def modes(self) -> tuple[str, ...]:
        """How it is decoded: by the transformer from scratch."""
        return ("scratch",)

    def work(self) -> ComparisonSpec:
        """The decode as a comparison, for whoever loads its model and looks whether it fits."""
        return ComparisonSpec(
            model=self.model, weights=self.weights, prompt=self.prompt, new_tokens=self.new_tokens, modes=self.modes
        )
