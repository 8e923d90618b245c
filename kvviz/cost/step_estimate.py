"""Estimate what bounds a step: the seconds of its four parts at the rates measured on this device.

Reading (weights, then the cache) and computing overlap; launch overhead adds to both. Imports only the standard
library.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

from kvviz.base.errors import KvvizError
from kvviz.cost.flops import Rates, cache_bytes_read, cached_step, parts, prefill, total_flops, weight_bytes_read
from kvviz.cost.shape import Shape
from kvviz.memory.formula import DTYPE_BYTES, kv_memory
from kvviz.models.spec import ModelSpec

WORDS = {
    "weights_s": "reading the weights",
    "computing_s": "arithmetic",
    "starting_s": "launching operations",
    "scan_s": "reading the cached keys and values",
}


class StepSeconds(TypedDict):
    """A `StepEstimate` as JSON values."""

    tokens: int
    weights_s: float
    computing_s: float
    starting_s: float
    scan_s: float


@dataclass(frozen=True)
class StepEstimate:
    """Seconds that a step at a context of `tokens` tokens spends on each part, by the cost model."""

    tokens: int
    weights_s: float
    computing_s: float
    starting_s: float
    scan_s: float

    @property
    def total(self) -> float:
        """Seconds of the step: the longer of reading and computing, plus the launches."""
        return max(self.weights_s + self.scan_s, self.computing_s) + self.starting_s

    @property
    def largest(self) -> str:
        """Field of the part that takes longest."""
        return max(WORDS, key=lambda name: getattr(self, name))

    @classmethod
    def of_run(cls, run: Mapping[str, object]) -> "StepEstimate | None":
        """Return the estimate in a document's run; None if there is none or it is all zeros."""
        found = run.get("estimate")
        if not isinstance(found, Mapping):
            return None
        estimate = cls(**{name: found[name] for name in ("tokens", *WORDS)})
        return estimate if estimate.total > 0 else None


@dataclass(frozen=True)
class Model:
    """What an estimate needs to know of a model; `shape` is None if its work can't be counted block by block."""

    spec: ModelSpec
    params: int
    shape: Shape | None


def estimate_step(
    model: Model, tokens: int, batch: int, dtype: str, rates: Rates | None, *, caches: bool
) -> StepSeconds | None:
    """Estimate a step at that context, as JSON values: over 1 token if the mode `caches`, else over all of them.

    None without rates, or for a model whose cache can't be counted.
    """
    if rates is None:
        return None
    try:
        return _estimate(model, tokens, batch, dtype, rates, caches)
    except KvvizError:
        return None


def _estimate(model: Model, tokens: int, batch: int, dtype: str, rates: Rates, caches: bool) -> StepSeconds:
    size = (model.params, len(model.spec.layers), batch * (1 if caches else tokens), DTYPE_BYTES[dtype], rates)
    if model.shape is None:
        weights, computing, starting = parts(*size).values()
        scanned = kv_memory(model.spec, tokens, batch=batch, dtype=dtype).total_bytes if caches else 0
    else:
        forward = (cached_step if caches else prefill)(model.shape, tokens, batch)
        _, computing, starting = parts(*size, work=total_flops(model.shape, forward)).values()
        weights = weight_bytes_read(model.shape, forward, dtype) / rates.read
        scanned = cache_bytes_read(model.shape, tokens, batch, dtype, forward.source or None) if caches else 0
    return {
        "tokens": tokens,
        "weights_s": weights,
        "computing_s": computing,
        "starting_s": starting,
        "scan_s": scanned / rates.read,
    }
