"""The untimed pass that comes first: all modes in lockstep, compared at every step, their caches read.

Tokens, text and layer states come from here; the clock's passes only add seconds.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from kvviz.base.errors import KvvizError, Stopped
from kvviz.base.records import LayerState
from kvviz.caches.formula import kept_bytes, reasons
from kvviz.decoding.loading import Loaded
from kvviz.decoding.loop import chooser, decode
from kvviz.decoding.modes import mode_named
from kvviz.decoding.read_cache import LiveTensors, cache_class, layer_states
from kvviz.device.allocator import Account, can_account, kept_by
from kvviz.experiments.comparison.report import reference_mode
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.memory.formula import cache_bytes
from kvviz.models.text import TextStream


@dataclass
class ModeTrace:
    """What is known of one mode so far. `tokens` has one row per step: the ids of the batch."""

    tokens: list[list[int]] = field(default_factory=list)
    text: str = ""
    layers: list[tuple[LayerState, ...]] = field(default_factory=list)
    cache_class: str | None = None
    outliving: list[int] = field(default_factory=list)
    max_delta: float | None = None
    divergence: int | None = None
    margin: float | None = None
    top_margins: list[float] = field(default_factory=list)  # of the reference mode alone, a value a step
    repeats: list[list[float]] = field(default_factory=list)
    repeatable: bool = True
    memory: dict[str, Any] | None = None


def loop(
    work: ComparisonSpec, loaded: Loaded, prompt: torch.Tensor, mode: str, steps: int, capacity: int | None = None
) -> Iterator[Any]:
    """The decode of one mode, fresh from its start. `capacity`: as in `decode`."""
    return decode(loaded.model, prompt, mode=mode, new_tokens=steps, choose=chooser(work.sampling), capacity=capacity)


class _Lane:
    """One mode's side of the lockstep: its loop, its text, what it made that still lives."""

    def __init__(self, work: ComparisonSpec, loaded: Loaded, prompt: torch.Tensor, mode: str, trace: ModeTrace) -> None:
        self.trace = trace
        self.step: Any = None
        self._made = LiveTensors(loaded.tensors)
        with self._made:  # a mode may reserve its cache when it is opened
            self._loop = loop(work, loaded, prompt, mode, work.new_tokens)
        self._stream = TextStream(loaded.codec)
        self._kinds = tuple(layer.kind for layer in loaded.spec.layers)
        self._ends = _Ends(work, loaded)
        self.added = ""

    def advance(self) -> None:
        """One step further, if this mode has not ended; its cache read afterwards."""
        self.step = None
        if self._ends.reached:
            return
        with self._made:
            self.step = next(self._loop)
        trace = self.trace
        trace.tokens.append(self.step.token_ids.tolist())
        self.added = self._stream.push(trace.tokens[-1][0])
        trace.text += self.added
        trace.layers.append(layer_states(self.step.cache, self._kinds))
        trace.cache_class = cache_class(self.step.cache)
        trace.outliving.append(self._made.live_bytes(self.step.logits))
        self._ends.note(trace.tokens[-1])


class _Ends:
    """Whether every sequence of the batch has chosen an end token or written the stop text."""

    def __init__(self, work: ComparisonSpec, loaded: Loaded) -> None:
        self._ids = loaded.stop_ids if work.stop_at_eos else frozenset()
        self._text = work.stop_text
        self._streams = [TextStream(loaded.codec) for _ in range(work.batch)]
        self._written = [""] * work.batch
        self._ended = [False] * work.batch
        self._left = work.new_tokens

    @property
    def reached(self) -> bool:
        return all(self._ended) or self._left == 0

    def note(self, ids: list[int]) -> None:
        self._left -= 1
        for row, token in enumerate(ids):
            self._ended[row] |= token in self._ids
            if self._text:
                self._written[row] += self._streams[row].push(token)
                self._ended[row] |= self._text in self._written[row]


def prove(
    work: ComparisonSpec,
    loaded: Loaded,
    prompt: torch.Tensor,
    traces: dict[str, ModeTrace],
    should_stop: Callable[[], bool],
) -> Iterator[dict[str, Any]]:
    """Step all modes in lockstep and compare them; yields a record a step."""
    reference = reference_mode(work.modes)
    order = sorted(work.modes, key=lambda name: name != reference)  # the reference first
    lanes = {name: _Lane(work, loaded, prompt, name, traces[name]) for name in order}
    for index in range(work.new_tokens):
        for lane in lanes.values():
            if should_stop():
                raise Stopped
            lane.advance()
        there = {name: lane for name, lane in lanes.items() if lane.step is not None}
        if not there:
            return
        for lane in there.values():
            _compare(lane, lanes[reference], loaded.dtype)
        _note_margin(lanes[reference])
        yield {"t": "proof", "i": index, "modes": {name: _row(lane, loaded) for name, lane in there.items()}}


def _compare(lane: _Lane, reference: _Lane, dtype: str) -> None:
    """Keep the largest |logit difference| up to and including the first divergence, and where that is."""
    trace, step, other = lane.trace, lane.step, reference.step
    if trace.divergence is not None:
        return
    if other is None:  # the reference ended earlier, which only a different text can do
        trace.divergence = step.index
        return
    delta = (step.logits.float() - other.logits.float()).abs().max().item()
    if not math.isfinite(delta):
        raise KvvizError(
            f"the logits of step {step.index} are not finite: these weights overflow in {dtype}; "
            "take float32 or bfloat16"
        )
    trace.max_delta = max(trace.max_delta or 0.0, delta)
    if trace.tokens[-1] != reference.trace.tokens[-1]:
        trace.divergence = step.index
        trace.margin = _margin(other.logits[step.token_ids != other.token_ids])


def _margin(logits: torch.Tensor) -> float:
    """How far the two best of logits (rows, vocabulary) lie apart, in the row where they are closest."""
    best = logits.float().topk(2, dim=-1).values
    return (best[:, 0] - best[:, 1]).min().item()


def _note_margin(reference: _Lane) -> None:
    """Keep how close the reference's choice of this step was."""
    if reference.step is not None:
        reference.trace.top_margins.append(_margin(reference.step.logits))


def _row(lane: _Lane, loaded: Loaded) -> dict[str, Any]:
    trace = lane.trace
    piece = loaded.codec.decode([trace.tokens[-1][0]])
    return {
        "ids": trace.tokens[-1],
        "text": lane.added,
        **({} if piece == lane.added else {"piece": piece}),
        "layers": grouped(trace.layers[-1]),
        "outliving": trace.outliving[-1],
        "delta": trace.max_delta,
        "divergence": trace.divergence,
        **({} if trace.margin is None else {"margin": trace.margin}),
    }


def grouped(rows: tuple[LayerState, ...]) -> list[list[Any]]:
    """Layers in the same state share one entry: [indices, kind, K shape, V shape, dtype, seen, held, nbytes,

    allocated]. A model of a hundred like layers takes one.
    """
    groups: dict[tuple, list[int]] = {}
    for row in rows:
        state = (row.kind, row.key_shape, row.value_shape, row.dtype, row.seen, row.held, row.nbytes, row.allocated)
        groups.setdefault(state, []).append(row.index)
    return [[indices, *map(_plain, state)] for state, indices in groups.items()]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


# --- three figures for the memory --------------------------------------------------------------------------


def account_memory(
    work: ComparisonSpec,
    loaded: Loaded,
    prompt: torch.Tensor,
    traces: dict[str, ModeTrace],
    should_stop: Callable[[], bool],
) -> Iterator[dict[str, Any]]:
    """For each mode, after the last step: the formula's bytes, the tensors', the allocator's. Untimed."""
    for name in work.modes:
        if should_stop():
            raise Stopped
        trace = traces[name]
        allocator = _allocator_account(work, loaded, prompt, name, trace, should_stop)
        figures = {
            "formula": _formula(work, loaded, prompt.shape[1], name, len(trace.tokens)),
            "tensors": sum(row.nbytes for row in trace.layers[-1]),
            "storages": sum(row.allocated for row in trace.layers[-1]),
        }
        why = reasons(name, figures, allocator.kept if allocator else None, loaded.device)
        trace.memory = {
            **figures,
            "allocator": asdict(allocator) if allocator else None,
            **({} if why is None else {"reasons": why}),
        }
        yield {"t": "memory", "mode": name, **trace.memory}


def _formula(work: ComparisonSpec, loaded: Loaded, prompt_tokens: int, mode: str, steps: int) -> int:
    """What the spec says the mode holds after its last step, which has fed all tokens but the newest."""
    if not mode_named(mode).caches:
        return 0
    fed = prompt_tokens + steps - 1
    own = kept_bytes(mode, loaded.spec, fed, work.batch, loaded.dtype)
    return cache_bytes(loaded.spec, fed, work.batch, loaded.dtype, view="hf-dynamic") if own is None else own


def _allocator_account(
    work: ComparisonSpec,
    loaded: Loaded,
    prompt: torch.Tensor,
    mode: str,
    trace: ModeTrace,
    should_stop: Callable[[], bool],
) -> Account | None:
    """The allocator's account of a mode: what it keeps at the end, what it takes at most on the way.

    Two steps stand for the whole run, since an account of each would take longer than the run: what is kept is
    counted over a prefill of all but the last token fed and one decode step; the peak is the higher of the
    prompt's prefill and that last step.
    """
    if not can_account(loaded.device):
        return None
    written = torch.tensor(trace.tokens[:-1], dtype=prompt.dtype, device=prompt.device).reshape(-1, work.batch)
    fed = torch.cat([prompt, written.T], dim=1)

    capacity = prompt.shape[1] + work.new_tokens  # as in the whole run

    def after(steps: Iterator[Any], count: int) -> Any:
        return _cache_after(steps, count, should_stop)

    def begun(ids: torch.Tensor, steps: int) -> Iterator[Any]:
        return loop(work, loaded, ids, mode, steps, capacity)

    if not mode_named(mode).caches or len(trace.tokens) == 1:
        return kept_by(lambda: after(begun(fed, 1), 1), loaded.device)
    result = kept_by(lambda: after(begun(fed[:, :-1], 2), 2), loaded.device)
    prefill = kept_by(lambda: after(begun(prompt, 1), 1), loaded.device)
    steps = begun(fed[:, :-1], 2)
    before = sum(row.allocated for row in layer_states(after(steps, 1)))
    last = kept_by(lambda: after(steps, 1), loaded.device)
    return replace(result, peak=max(prefill.peak, before + last.peak))


def _cache_after(steps: Iterator[Any], count: int, should_stop: Callable[[], bool]) -> Any:
    """The cache after `count` more steps. Raises Stopped after the step under way when told to."""
    for step in itertools.islice(steps, count):
        cache = step.cache
        if should_stop():
            raise Stopped
    return cache
