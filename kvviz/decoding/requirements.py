"""What is asked of a decode, and the bytes and seconds that it needs, before anything is loaded. No torch here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.base.records import Sampling
from kvviz.base.words import human
from kvviz.cost.flops import Rates, estimated
from kvviz.cost.step_estimate import Model
from kvviz.decoding.modes import mode_named
from kvviz.memory.formula import DTYPE_BYTES, logits_bytes, peak_cache_bytes
from kvviz.models.sources import Source
from kvviz.models.spec import ModelSpec
from kvviz.models.text import ByteCodec


@dataclass(frozen=True)
class Work:
    """One piece of work for a loaded model: the prompt is a text, or `prompt_tokens` tokens of the `filler`.

    The `filler` is "random" (seeded) or "book". `warmup` counts the full passes before the measured `repeats`. A
    `kvviz.experiments.comparison.spec.ComparisonSpec` is such work, checked; every other experiment has a method that
    returns one.
    """

    model: str
    modes: tuple[str, ...] = ("uncached", "cached")
    weights: str = "auto"
    prompt: str | None = None
    prompt_tokens: int | None = None
    filler: str = "random"
    new_tokens: int = 32
    batch: int = 1
    repeats: int = 3
    warmup: int = 1
    dtype: str = "float32"
    device: str = "auto"
    attn: str = "sdpa"
    sampling: Sampling = Sampling()  # noqa: RUF009, frozen


@dataclass(frozen=True)
class Needs:
    """Bytes that a comparison needs on its device: weights, every mode's cache at full length, logits."""

    weights: int
    caches: int
    logits: int

    @property
    def total(self) -> int:
        """Sum of weights, caches and logits."""
        return self.weights + self.caches + self.logits

    def check(self, free: int, device: str, share: float = 1.0) -> None:
        """Raise KvvizError, with the figures, for work that needs more than this share of the free bytes."""
        if self.total > share * free:
            part = f"; one piece of work may take {human(share * free)} of them" if share < 1 else ""
            raise KvvizError(
                f"this choice needs {human(self.total)} (weights {human(self.weights)}, caches {human(self.caches)}, "
                f"logits {human(self.logits)}), and {device} has {human(free)} free{part}: take a smaller model, a "
                "shorter run or half-precision weights"
            )


def prompt_length(work: Work) -> int:
    """Upper limit of the prompt's tokens; a text has no more tokens than bytes."""
    return work.prompt_tokens or len(ByteCodec(None).encode(work.prompt or ""))


def size_of(source: Source) -> tuple[ModelSpec, int]:
    """Return the spec and the parameter count of a model. Raises KvvizError if its config has not been fetched yet."""
    spec = source.spec
    if spec is None or source.params is None:
        raise KvvizError(f"the size of {source.model} is not known before its config is fetched")
    return spec, source.params


def needs(source: Source, work: Work) -> Needs:
    """Sum up the weights, the caches of the equivalence check (all modes at once) and their logits."""
    tokens = prompt_length(work) + work.new_tokens
    filling = sum(mode_named(name).fills for name in work.modes)
    spec, params = size_of(source)
    return Needs(
        weights=params * DTYPE_BYTES[work.dtype],
        caches=filling * peak_cache_bytes(spec, tokens, work.batch, work.dtype),
        logits=len(work.modes) * logits_bytes(spec, work.batch, work.dtype),
    )


def each_pass(source: Source, work: Work, device: Mapping[str, Any]) -> dict[str, float]:
    """Estimate one pass of each mode (seconds) at the device's measured rates."""
    model = Model(*size_of(source), estimated(source.config or {}))
    size = (prompt_length(work), work.new_tokens, work.dtype, Rates(**device["rates"]))
    return {
        name: model.pass_seconds(*size, caches=mode_named(name).caches, batch=work.batch)
        for name in dict.fromkeys(work.modes)
    }


def seconds(source: Source, work: Work, device: Mapping[str, Any]) -> float:
    """Estimate the seconds of the whole comparison: every mode's pass times its warm-ups and repeats."""
    return sum(each_pass(source, work, device).values()) * (work.warmup + work.repeats)
