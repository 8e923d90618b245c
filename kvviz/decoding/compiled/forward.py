"""The mode `compiled`: a forward over a preallocated cache, whose single steps take the fastest path of this device."""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch

from kvviz.decoding.compiled.graph import GraphStep, replays
from kvviz.decoding.compiled.reader import Reader
from kvviz.decoding.loop import Choose, greedy
from kvviz.decoding.modes import LARGEST
from kvviz.decoding.scratch.cache import SlotCache
from kvviz.decoding.scratch.load import shared_twin
from kvviz.decoding.scratch.model import Transformer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

log = logging.getLogger("kvviz.decoding.compiled")
Step = Callable[[torch.Tensor, Sequence[SlotCache]], torch.Tensor]
_unfit: "WeakKeyDictionary[Transformer, str | None]" = WeakKeyDictionary()
_readers: "WeakKeyDictionary[PreTrainedModel, Reader]" = WeakKeyDictionary()


class CompiledForward:
    """The mode's forward (`kvviz.decoding.modes`): from ids and new tokens to logits and the run's caches.

    `path` is the first that works: a CUDA `graph`, the `native` compiled step, torch's `operations`; `reason`, why not
    the one before.
    """

    reads_ids = False

    def __init__(self, model: "PreTrainedModel", capacity: int) -> None:
        self._capacity = capacity
        self._twin = shared_twin(model)
        self._read = _reader(model, self._twin)
        self._step: Step = self._read
        self._short: Step = self._read  # reads up to `_few` tokens at once
        self._few = 0  # of all sequences together
        self._likeliest: torch.Tensor | None = None  # tokens (B,), if the step that made the last logits has found them
        self.caches: list[SlotCache] = []
        self.path = ""
        self.reason: str | None = None

    @torch.inference_mode()
    def prepare(self, batch: int) -> None:
        """Reserve the caches of so many sequences, and get ready to decode them token by token."""
        self._step = self._short = self._read  # an earlier graph and its caches go before new memory is taken
        self.caches = []
        design, like = self._twin.design, self._twin.tokens.weight
        size = (batch, design.kv_heads, self._capacity, design.head_dim)
        self.caches = [SlotCache(*size, like) for _ in range(design.layers)]
        self.path, self._step, self.reason = self._fastest(batch)
        self._short, self._few = self._step, getattr(self._step, "most", 0)
        if self.reason:
            log.info("compiled: %s, because %s", self.path, self.reason)

    def choosing(self, choose: Choose) -> Choose:
        """Return how tokens are chosen: as by `choose`.

        The native step finds the tokens of `greedy` itself: torch's argmax took 7% of a small model's run.
        """
        return self._greedy if choose is greedy else choose

    def _greedy(self, logits: torch.Tensor, index: int) -> torch.Tensor:
        return greedy(logits, index) if self._likeliest is None else self._likeliest

    def wrap_step(self, around: Callable[[Step], Step]) -> None:
        """Put something around each single step, such as a profiler's mark."""
        self._step = around(self._step)

    def _fastest(self, batch: int) -> tuple[str, Step, str | None]:
        if replays(self.caches):
            try:
                return "graph", GraphStep(self._read, self.caches), None
            except RuntimeError as error:  # an operation that can't be captured, or no memory for it
                why = str(error).partition("\n")[0]
                return "operations", self._read, f"the step can't be captured ({why})"
        reason = refusal(self._twin, batch)
        try:
            if reason is None:
                from kvviz.decoding.compiled.native import NativeStep

                return "native", NativeStep(self._twin, self.caches), None
        except (ImportError, RuntimeError, AttributeError) as error:  # no llvmlite, or no OpenMP in this torch
            reason = f"the step can't be compiled ({error})"
        return "operations", self._read, reason

    def __call__(self, ids: torch.Tensor, new: torch.Tensor) -> tuple[torch.Tensor, list[SlotCache]]:
        if not self.caches:
            self.prepare(new.shape[0])
        if new.shape[1] == 1 and self.caches[0].seen:
            step = self._step
        else:
            step = self._short if new.numel() <= self._few else self._read
        logits = step(new, self.caches)
        self._likeliest = getattr(step, "likeliest", None)
        return logits, self.caches


def _reader(model: "PreTrainedModel", twin: Transformer) -> Reader:
    """Make the reader of a model's twin once: a run of a small model is hardly longer."""
    if model not in _readers or _readers[model].twin is not twin:
        _readers[model] = Reader(twin)
    return _readers[model]


def refusal(twin: Transformer, batch: int) -> str | None:
    """Why the compiled step can't take a model's weights or is the slower one; None if it can and is not."""
    if batch > LARGEST:
        return f"more than {LARGEST} sequences are matrix products"
    if twin not in _unfit:  # a run of a small model is shorter than a walk through its modules
        _unfit[twin] = _why_unfit(twin)
    return _unfit[twin]


def _why_unfit(twin: Transformer) -> str | None:
    weights = list(twin.state_dict().values())
    devices, dtypes = {w.device.type for w in weights}, {w.dtype for w in weights}
    if devices != {"cpu"}:
        return "the weights are not in the processor's memory"
    if dtypes != {torch.float32}:
        return "the weights are not float32"
    if any(1 not in weight.stride() and weight.numel() > 1 for weight in weights):
        return "a weight lies scattered in memory"
    return None
