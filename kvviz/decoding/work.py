"""What is asked of a decode. Imports only the standard library."""

from dataclasses import dataclass

from kvviz.base.records import Sampling


@dataclass(frozen=True)
class Work:
    """One piece of work for a loaded model: the prompt is a text, or `prompt_tokens` seeded random tokens.

    `warmup` counts the full passes before the measured `repeats`. A `kvviz.experiments.comparison.spec.ComparisonSpec`
    is such work, checked; every other experiment has a method that returns one.
    """

    model: str
    modes: tuple[str, ...] = ("uncached", "cached")
    weights: str = "auto"
    prompt: str | None = None
    prompt_tokens: int | None = None
    new_tokens: int = 32
    batch: int = 1
    repeats: int = 3
    warmup: int = 1
    dtype: str = "float32"
    device: str = "auto"
    attn: str = "sdpa"
    sampling: Sampling = Sampling()  # noqa: RUF009, frozen
