"""What a viewer asks to see inside, as a value: a layer, a mistake, first steps, the roofline, cache designs raced.

Standard library only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvviz.caches.designs import DESIGNS
from kvviz.errors import KvvizError
from kvviz.records import WEIGHTS, ComparisonSpec, check_fields, check_whole, is_whole
from kvviz.scratch.pitfalls import pitfall_named
from kvviz.servelooks import ArrivalsSpec, ServeLook, SharingSpec, TalkSpec, Written
from kvviz.text import STORY

KINDS = ("anatomy", "mistake", "first-steps")
MOST_NEW = 48  # decode steps; a look is for reading, not for measuring
MOST_PROMPT = 48  # tokens
ROOF = "roofline"
SHORTEST = 16  # tokens: where the ladder of lengths begins
SHORT = 32  # tokens of the shorter context that is decoded in growing batches
REACH = 8  # positions beyond the longest context that timed steps come to
CACHES = "caches"
RACEABLE = (*DESIGNS, "static", "quantized")  # kvviz's own designs, and transformers' beside them
RACED = ("concat", "prealloc", "paged", "prefix", "sinks", "int8", "int4")
REFERENCES = ("uncached", "cached")
MOST_RACED = 192  # new tokens


@dataclass(frozen=True)
class LookSpec(Written):
    """One attention layer of a decode (`anatomy`: `layer`, `head`), or a decode with a mistake in it (`mistake`).

    Or the decoder of attention alone that comes before a whole one (`first-steps`), which has no model and no prompt.
    """

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

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "LookSpec":
        """Read `to_dict`'s values. Raises KvvizError for a field that does not exist or does not fit."""
        check_fields(cls, data, "a look")
        return cls(**data)


@dataclass(frozen=True)
class RoofSpec(Written):
    """Prefills and decode steps of one model, timed from SHORTEST to `tokens` tokens and up to `batch` sequences."""

    model: str
    weights: str = "auto"
    tokens: int = 512
    batch: int = 16
    dtype: str = "float32"
    device: str = "auto"
    kind: str = ROOF

    def __post_init__(self) -> None:
        if self.kind != ROOF:
            raise KvvizError(f"a look of this form is {ROOF!r}, not {self.kind!r}")
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


@dataclass(frozen=True)
class CachesSpec(Written):
    """The same prompt through cache `designs`, measured beside REFERENCES.

    The `batch` sequences share the prompt, and each goes on in its own way from the first token after it.
    """

    model: str
    designs: tuple[str, ...] = RACED
    weights: str = "auto"
    prompt: str = STORY
    new_tokens: int = 64
    batch: int = 2
    repeats: int = 3
    dtype: str = "float32"
    device: str = "auto"
    kind: str = CACHES

    def __post_init__(self) -> None:
        if self.kind != CACHES:
            raise KvvizError(f"a look of this form is {CACHES!r}, not {self.kind!r}")
        if not self.designs:
            raise KvvizError(f"choose at least one cache design of {', '.join(RACEABLE)}")
        for name in self.designs:
            if name not in RACEABLE:
                raise KvvizError(f"no cache design {name!r} to be compared; there are {', '.join(RACEABLE)}")
        check_whole("new_tokens", self.new_tokens, 2, MOST_RACED)
        self.work()  # checks the rest

    @property
    def modes(self) -> tuple[str, ...]:
        """How it is decoded: the references, then the designs."""
        return (*REFERENCES, *self.designs)

    def work(self) -> ComparisonSpec:
        """All of it as a comparison."""
        return ComparisonSpec(
            model=self.model,
            weights=self.weights,
            prompt=self.prompt,
            new_tokens=self.new_tokens,
            batch=self.batch,
            repeats=self.repeats,
            dtype=self.dtype,
            device=self.device,
            modes=self.modes,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; `look_of` reads them back."""
        return {**super().to_dict(), "designs": list(self.designs)}


Look = LookSpec | RoofSpec | CachesSpec | ServeLook

# The form of each kind and what a refusal calls it; all other kinds are LookSpec's.
_FORMS: Mapping[str, tuple[type[Look], str]] = {
    ROOF: (RoofSpec, "a look at the roofline"),
    CACHES: (CachesSpec, "a look at cache designs"),
    **{form.kind: (form, f"a look of the kind {form.kind}") for form in (ArrivalsSpec, SharingSpec, TalkSpec)},
}


def look_of(data: Mapping[str, Any]) -> Look:
    """Whichever look `to_dict` has written. Raises KvvizError as `LookSpec.from_dict` does."""
    if data.get("kind") not in _FORMS:
        return LookSpec.from_dict(data)
    form, words = _FORMS[data["kind"]]
    check_fields(form, data, words)
    return form(**{name: tuple(value) if name == "designs" else value for name, value in data.items()})
