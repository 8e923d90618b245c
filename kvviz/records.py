"""What runs are made of: the small frozen values that pass between the rooms, and the checks that such values share.

Standard library only; tensors appear here as `Any` and never travel further than the measuring process.
"""

import math
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from kvviz.errors import KvvizError


def new_id() -> str:
    """A short id for addresses, one that no command line takes for an option."""
    return secrets.token_urlsafe(6).replace("-", "_")


WEIGHTS = ("auto", "bundled", "random", "hub", "local")
DTYPES = ("float32", "bfloat16", "float16")
ATTENTION = ("sdpa", "eager")
LIMITS = {"new_tokens": 32_768, "prompt_tokens": 131_072, "batch": 64, "repeats": 50, "warmup": 20}


def is_whole(value: Any, least: int, most: float = math.inf) -> bool:
    """Whether it is a whole number within these bounds."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def check_whole(name: str, value: Any, least: int, most: int) -> None:
    """Raises KvvizError where it is no whole number within these bounds."""
    if not is_whole(value, least, most):
        raise KvvizError(f"{name.replace('_', ' ')} is {value!r}; it is a whole number from {least:,} to {most:,}")


def check_fields(form: type, data: Mapping[str, Any], what: str) -> None:
    """Raises KvvizError where `data` names a field that the dataclass has not; `what` it is, in words."""
    if unknown := set(data) - {f.name for f in fields(form)}:
        raise KvvizError(f"{what} has no field {', '.join(sorted(unknown))}")


def _finite(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


@dataclass(frozen=True)
class LayerState:
    """One layer's cache as it is now: `seen` tokens have passed, `held` of them are kept.

    Those take `nbytes` bytes inside storages of `allocated` bytes; `state_bytes` of them are neither keys nor values
    (convolution and recurrent states, an indexer's keys). Shapes are those of the stored tensors,
    `(batch, kv_heads, held, dim)`; an empty tuple where a layer keeps no such tensor.
    """

    index: int
    kind: str
    key_shape: tuple[int, ...]
    value_shape: tuple[int, ...]
    dtype: str
    seen: int
    held: int
    nbytes: int
    allocated: int
    state_bytes: int = 0


@dataclass(frozen=True)
class Step:
    """What a decode loop yields: the tokens chosen at this step and the logits they were chosen from.

    `index` 0 is the prefill. `token_ids` is a (B,) tensor, `logits` (B, vocabulary); `cache` is the object
    that the run keeps for its next step, None where it keeps nothing.
    """

    index: int
    phase: str
    token_ids: Any
    logits: Any
    cache: Any


@dataclass(frozen=True)
class Timed:
    """A step and the seconds it took, the device synchronised on both sides."""

    step: Step
    seconds: float


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen: `temperature` 0 is greedy; the draws depend on `seed` and the step alone."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not _finite(self.temperature) or not 0 <= self.temperature <= 100:
            raise KvvizError(f"temperature is {self.temperature!r}; it is a number from 0 (greedy) to 100")
        if self.top_k is not None and not is_whole(self.top_k, 1):
            raise KvvizError(f"top_k is {self.top_k!r}; it is a whole number of at least 1")
        if self.top_p is not None and not (_finite(self.top_p) and 0 < self.top_p <= 1):
            raise KvvizError(f"top_p is {self.top_p!r}; it is a number above 0 and at most 1")
        if not is_whole(self.seed, 0, 2**32 - 1):
            raise KvvizError(f"seed is {self.seed!r}; it is a whole number from 0 to {2**32 - 1}")


@dataclass(frozen=True)
class ComparisonSpec:
    """One piece of work, decoded in several modes: what a form asks for and what is queued.

    The prompt is a text, or `prompt_tokens` seeded random tokens. `warmup` counts full passes before the
    measured `repeats`; the first of them proves that the modes agree.
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
    sampling: Sampling = Sampling()
    stop_at_eos: bool = False
    stop_text: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model.strip():
            raise KvvizError("a comparison needs a model: a catalog id such as gpt2, a folder or a Hugging Face id")
        self._check_prompt()
        for name in ("new_tokens", "batch", "repeats", "warmup"):
            check_whole(name, getattr(self, name), 1, LIMITS[name])
        for name, allowed in (("weights", WEIGHTS), ("dtype", DTYPES), ("attn", ATTENTION)):
            if getattr(self, name) not in allowed:
                raise KvvizError(f"{name} is {getattr(self, name)!r}; it is one of {', '.join(allowed)}")
        if not self.modes or len(set(self.modes)) != len(self.modes):
            raise KvvizError("a comparison needs at least one mode, each named once, such as uncached,cached")

    def _check_prompt(self) -> None:
        if (self.prompt is None) == (self.prompt_tokens is None):
            raise KvvizError("give either a prompt text or a number of prompt tokens")
        if self.prompt_tokens is not None:
            check_whole("prompt_tokens", self.prompt_tokens, 1, LIMITS["prompt_tokens"])
        elif not isinstance(self.prompt, str) or not self.prompt:
            raise KvvizError("the prompt is empty; it has to hold at least one character")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; `from_dict` reads them back."""
        return {**asdict(self), "modes": list(self.modes)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ComparisonSpec":
        """Read `to_dict`'s values. Raises KvvizError for a field that does not exist or does not fit."""
        check_fields(cls, data, "a comparison")
        sampling = Sampling(**data.get("sampling", {}))
        return cls(**{**data, "modes": tuple(data.get("modes", cls.modes)), "sampling": sampling})


@dataclass(frozen=True)
class Environment:
    """Where the figures were measured; it travels with them."""

    device: str
    device_name: str
    dtype: str
    attn_implementation: str
    threads: int
    cores: int
    torch: str
    transformers: str
    python: str
    platform: str
