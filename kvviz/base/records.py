"""The small frozen values that runs are made of, and the checks that such values share.

No tensor is in them: a decode's `Step` (`kvviz.decoding.loop`) never leaves its process.
"""

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, TypeGuard

from kvviz.base.checks import Absent, number, text, whole
from kvviz.base.errors import KvvizError

Line = Annotated[str, text(200)]


def new_id() -> str:
    """A short id for addresses; no command line takes it for an option."""
    return secrets.token_urlsafe(6).replace("-", "_")


DTYPES = ("float32", "bfloat16", "float16")
LONGEST_NOTE = 500  # characters of what a page says of a model
SPLIT = "split"  # asked for as a device: the model is spread over all devices of the machine


def is_whole(value: object, least: int, most: float = math.inf) -> TypeGuard[int]:
    """Whether it is a whole number within these bounds."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def check_whole(name: str, value: object, least: int, most: int) -> None:
    """Raise KvvizError unless it is a whole number within these bounds."""
    if not is_whole(value, least, most):
        raise KvvizError(f"{name.replace('_', ' ')} is {value!r}; it is a whole number from {least:,} to {most:,}")


def check_fields(form: type, data: Mapping[str, object], what: str) -> None:
    """Raise KvvizError if `data` names a field that the dataclass lacks; `what` it is, in words."""
    if unknown := set(data) - {f.name for f in fields(form)}:
        known = ", ".join(sorted(f.name for f in fields(form)))
        raise KvvizError(f"{what} has no field {', '.join(sorted(unknown))}; its fields are {known}")


def _finite(value: object) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


@dataclass(frozen=True)
class LayerState:
    """One layer's cache as it is now: the layer has seen `seen` tokens and holds `held` of them.

    Those take `nbytes` bytes inside storages of `allocated` bytes; `state_bytes` of them are neither keys nor values
    (convolution and recurrent states, an indexer's keys). Shapes are those of the stored tensors,
    `(batch, kv_heads, held, dim)`; an empty tuple if the layer keeps no such tensor.
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
class Sampling:
    """How a token is chosen: `temperature` 0 is greedy; the draws depend on `seed` and the step alone."""

    temperature: Annotated[float, number(0, 100)] = 0.0
    top_k: Annotated[int, whole(1)] | None = None
    top_p: Annotated[float, number(0, 1)] | None = None
    seed: Annotated[int, whole(0, 2**32 - 1)] = 0

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
class Machine:
    """The environment that ceilings depend on; what `key` leaves out is only informative.

    `driver`, `cuda` (the version that torch was built for) and `capability` describe an NVIDIA card; None without one.
    """

    device: Line
    device_name: Line
    threads: Annotated[int, whole(0, 10**6)]
    cores: Annotated[int, whole(0, 10**6)]
    torch: Line
    python: Line
    platform: Line
    driver: Annotated[Line | None, Absent(None)] = field(default=None, kw_only=True)
    cuda: Annotated[Line | None, Absent(None)] = field(default=None, kw_only=True)
    capability: Annotated[Line | None, Absent(None)] = field(default=None, kw_only=True)

    @property
    def key(self) -> tuple[str, str, int, str]:
        """Key of a set of ceilings: environments with the same key share one set."""
        return self.device, self.device_name, self.threads, self.torch


@dataclass(frozen=True)
class Environment(Machine):
    """Where the figures were measured; it travels with them.

    `busy`: cores that other processes kept busy while the passes were timed, on average; None if nobody can tell.
    `worker`: which of a server's workers measured, such as cpu:1, or gpu-2/cuda:0 on another node; None of one alone.
    """

    dtype: Line
    attn_implementation: Line
    transformers: Line
    busy: Annotated[Annotated[float, number(0)] | None, Absent(None)] = field(default=None, kw_only=True)
    worker: Annotated[Line | None, Absent(None)] = field(default=None, kw_only=True)
