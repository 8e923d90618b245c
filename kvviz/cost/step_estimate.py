"""Estimate the seconds of a step and of a whole pass at the rates measured on this device."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from kvviz.base.checks import number, whole
from kvviz.base.errors import KvvizError
from kvviz.cost.flops import Rates, cache_bytes_read, cached_step, prefill, total_flops, weight_bytes_read
from kvviz.cost.shape import Shape
from kvviz.memory.formula import DTYPE_BYTES, kv_memory
from kvviz.models.spec import ModelSpec

OPERATIONS_PER_LAYER = 100  # eager PyTorch, kernels and the Python around them; order of magnitude
WORDS = {
    "weights_s": "reading the weights",
    "computing_s": "arithmetic",
    "starting_s": "launch overhead",
    "scan_s": "reading the cached keys and values",
}
_Seconds = Annotated[float, number(0, 1e6)]


def chiefly(part: float, whole: float) -> str:
    """The word for the longest part of a time: it is "mostly" that only if it is half of it or more."""
    return "mostly" if part >= whole / 2 else "more than anything else"


@dataclass(frozen=True)
class StepEstimate:
    """Seconds that a step at a context of `tokens` tokens spends on each part, by the cost model."""

    tokens: Annotated[int, whole(1)]
    weights_s: _Seconds
    computing_s: _Seconds
    starting_s: _Seconds
    scan_s: _Seconds

    @property
    def total(self) -> float:
        """Seconds of the step: the longer of reading and computing, which overlap, plus the launches."""
        return max(self.weights_s + self.scan_s, self.computing_s) + self.starting_s

    @property
    def largest(self) -> str:
        """Field of the part that takes longest."""
        return max(WORDS, key=lambda name: getattr(self, name))

    @property
    def words(self) -> str:
        """Name the longest part: "mostly reading the weights"."""
        return f"{chiefly(getattr(self, self.largest), self.total)} {WORDS[self.largest]}"

    def within(self, measured_s: float | None) -> "StepEstimate":
        """Return the estimate with launches that take no longer than the measured step, which holds all of them."""
        return self if measured_s is None else replace(self, starting_s=min(self.starting_s, measured_s))

    @classmethod
    def of_run(cls, run: Mapping[str, object]) -> "StepEstimate | None":
        """Return the estimate in a document's run; None if the document has no estimate or only zeros."""
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

    def parts(
        self, tokens: int, dtype: str, rates: Rates, work: int | None = None, calls: int | None = None
    ) -> dict[str, float]:
        """Estimate the seconds of a forward over `tokens` tokens by part, if it does `work` FLOPs or 2 x params each.

        Every weight is read once, whatever the number of tokens. It starts as many operations as eager PyTorch does, or
        `calls` of them.
        """
        eager = len(self.spec.layers) * OPERATIONS_PER_LAYER
        return {
            "reading the weights": self.params * DTYPE_BYTES[dtype] / rates.read,
            "computing": (2 * self.params * tokens if work is None else work) / rates.flops_in(dtype),
            "launching operations": (eager if calls is None else calls) * rates.launch,
        }

    def step(
        self, tokens: int, batch: int, dtype: str, rates: Rates, *, caches: bool, calls: int | None = None
    ) -> StepEstimate | None:
        """Estimate a step at that context: over 1 token if the mode `caches`, else over all of them.

        None for a model whose cache can't be counted.
        """
        processed, scanned = batch * (1 if caches else tokens), 0
        try:
            if self.shape is None:
                weights, computing, starting = self.parts(processed, dtype, rates, None, calls).values()
                if caches:
                    scanned = kv_memory(self.spec, tokens, batch=batch, dtype=dtype).total_bytes
            else:
                forward = (cached_step if caches else prefill)(self.shape, tokens, batch)
                work = total_flops(self.shape, forward)
                _, computing, starting = self.parts(processed, dtype, rates, work, calls).values()
                weights = weight_bytes_read(self.shape, forward, dtype) / rates.read
                if caches:
                    scanned = cache_bytes_read(self.shape, tokens, batch, dtype, forward.source or None)
        except KvvizError:
            return None
        return StepEstimate(tokens, weights, computing, starting, scanned / rates.read)

    def pass_seconds(
        self,
        prompt_tokens: int,
        new_tokens: int,
        dtype: str,
        rates: Rates,
        *,
        caches: bool,
        batch: int = 1,
        calls: int | None = None,
    ) -> float:
        """Estimate one full pass: a prefill and new_tokens - 1 decode steps, each over 1 token or over all so far.

        A step takes the longer of reading the weights and computing, plus the launches.
        """

        def seconds(index: int) -> float:
            seen, step = prompt_tokens + index, caches and index > 0
            forward = self.shape and (cached_step if step else prefill)(self.shape, seen, batch)
            work = total_flops(self.shape, forward) if self.shape and forward else None
            reading, computing, starting = self.parts(batch * (1 if step else seen), dtype, rates, work, calls).values()
            return max(reading, computing) + starting

        if new_tokens <= 64:
            return sum(seconds(i) for i in range(new_tokens))
        first, middle, last = seconds(1), seconds(new_tokens // 2), seconds(new_tokens - 1)
        return seconds(0) + (new_tokens - 1) * (first + 4 * middle + last) / 6  # Simpson's rule, exact for a parabola
