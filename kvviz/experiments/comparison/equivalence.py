"""The equivalence check: an untimed first pass that steps all modes in lockstep and compares them at every step."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

import torch

from kvviz.base.errors import KvvizError
from kvviz.base.records import LayerState
from kvviz.decoding.loop import Step
from kvviz.decoding.modes import mode_named
from kvviz.decoding.read_cache import LiveTensors, cache_class, layer_states, whereabouts
from kvviz.experiments.comparison.comparison_run import Checked, ComparisonRun
from kvviz.experiments.comparison.figures import reference_mode
from kvviz.experiments.comparison.records import CheckedStep, LayerFields, LayerGroup, LookedStep, Proof
from kvviz.models.text import TextStream


def check_equivalence(run: ComparisonRun) -> Iterator[Proof]:
    """Step all modes in lockstep and compare them. Fills `run.checked` and yields one record per step."""
    reference = reference_mode(run.work.modes)
    run.checked = {mode: Checked() for mode in run.work.modes}
    order = sorted(run.work.modes, key=lambda name: name != reference)  # the reference steps first
    lanes = {name: _Lane(run, name) for name in order}
    for index in range(run.work.new_tokens):
        for lane in lanes.values():
            run.check_stop()
            lane.advance()
        compared = _compared(lanes, lanes[reference], run.loaded.dtype)
        if not compared:
            return
        yield {"t": "proof", "i": index, "modes": compared}


class Reading:
    """What is read of one mode's latest step: its ids (B,), the layers, the text that it adds to the first sequence.

    `piece` is that sequence's token alone, `proposed` are a draft's proposals as in `Step`, as text. A mode has `ended`
    when each sequence has an end token or the stop text.
    """

    def __init__(self, run: ComparisonRun, mode: str) -> None:
        work, loaded = run.work, run.loaded
        self._speculates = mode_named(mode).speculates
        self._codec = loaded.codec
        self._kinds = tuple(layer.kind for layer in loaded.spec.layers)
        self._end_ids = loaded.stop_ids if work.stop_at_eos else frozenset()
        self._stop_text = work.stop_text
        self._streams = [TextStream(loaded.codec) for _ in range(work.batch)]
        self._written = [""] * work.batch
        self._ended = [False] * work.batch

    @property
    def ended(self) -> bool:
        return all(self._ended)

    def tell(self, record: LookedStep | CheckedStep) -> None:
        """Add to a step's record where the cache lies, and what was proposed, where they apply."""
        if self.where is not None:
            record["where"] = self.where
        if self._speculates:
            record["proposed"] = self.proposed

    def read(self, step: Step) -> None:
        self.ids: list[int] = step.token_ids.tolist()
        self.layers = layer_states(step.cache, self._kinds)
        self.where = whereabouts(step.cache) if step.index == 0 else None
        self.proposed = None if step.proposed is None else [self._codec.decode([one]) for one in step.proposed]
        self.piece, self.text = self._codec.decode(self.ids[:1]), self._streams[0].push(self.ids[0])
        for row, token in enumerate(self.ids):
            self._ended[row] |= token in self._end_ids
            if self._stop_text:
                self._written[row] += self._streams[row].push(token) if row else self.text
                self._ended[row] |= self._stop_text in self._written[row]


class _Lane(Reading):
    """One mode in the lockstep: its decode, and its live tensors."""

    def __init__(self, run: ComparisonRun, mode: str) -> None:
        super().__init__(run, mode)
        self._mode = mode_named(mode)
        self.checked = run.checked[mode]
        self.step: Step | None = None
        self._live = LiveTensors(run.loaded.tensors)
        with self._live:  # some modes allocate their cache when they are opened
            self._steps = run.decode(mode)

    def advance(self) -> None:
        """Take one more step and read the cache, unless this mode's text has ended."""
        self.step = None
        if self.ended:
            return
        with self._live:
            self.step = next(self._steps, None)
        if self.step is None:  # a server has ended its text
            self._ended = [True] * len(self._ended)
            return
        self.read(self.step)
        if self._mode.caches and not any(row.nbytes for row in self.layers):
            raise KvvizError(
                f"{self._mode.name} keeps nothing of this model's prompt, so its next step could not continue it: "
                "take uncached"
            )
        self.checked.tokens.append(self.ids)
        self.checked.layers.append(self.layers)
        self.checked.cache_class = cache_class(self.step.cache)
        self.checked.proposed.append(self.step.proposed)
        self.checked.outliving.append(self._live.live_bytes(*([] if self.step.logits is None else [self.step.logits])))

    def record(self) -> CheckedStep:
        """Return the step in the form that the feed sends."""
        checked = self.checked
        record: CheckedStep = {
            "ids": self.ids,
            "text": self.text,
            "layers": grouped(self.layers),
            "outliving": None if self._mode.elsewhere else checked.outliving[-1],
            "delta": checked.max_delta,
            "divergence": checked.divergence,
        }
        if self.piece != self.text:
            record["piece"] = self.piece
        if checked.margin is not None:
            record["margin"] = checked.margin
        self.tell(record)
        return record


def _compared(lanes: Mapping[str, _Lane], reference: _Lane, dtype: str) -> dict[str, CheckedStep]:
    """Compare the step that the modes have just taken; return records by mode, without modes whose text has ended.

    This is a separate function so that no local variable keeps a step's tensors alive: they would count among the live
    tensors of the next step.
    """
    result: dict[str, CheckedStep] = {}
    for name, lane in lanes.items():
        if lane.step is not None:
            _compare(name, lane.checked, lane.step, reference.checked, reference.step, dtype)
            result[name] = lane.record()
    if reference.step is not None and reference.step.logits is not None:
        reference.checked.top_margins.append(_margin(reference.step.logits))
    return result


def _compare(name: str, checked: Checked, step: Step, reference: Checked, other: Step | None, dtype: str) -> None:
    """Record the first divergence, and the largest |logit difference| up to and including it."""
    if checked.divergence is not None:
        return
    if other is None:  # the reference ended earlier, so the texts must differ
        checked.divergence = step.index
        return
    differs = checked.tokens[-1] != reference.tokens[-1]
    if step.logits is None or other.logits is None:
        checked.divergence = step.index if differs else None
        checked.margin = _margin(other.logits) if differs and other.logits is not None else None
        return
    delta = (step.logits.float() - other.logits.float()).abs().max().item()
    if not math.isfinite(delta):
        advice = mode_named(name).account.advice
        if not other.logits.isfinite().all():
            why = f"these weights overflow in {dtype}; take float32 or bfloat16"
        else:
            why = f"the other modes' are, so {name} can't hold this model's keys and values; {advice}"
        raise KvvizError(f"the logits of {name} in step {step.index} are not finite: {why}")
    checked.max_delta = max(checked.max_delta or 0.0, delta)
    if differs:
        checked.divergence = step.index
        checked.margin = _margin(other.logits[step.token_ids != other.token_ids])
        if mode_named(name).exact and delta > rounding(dtype) * other.logits.abs().max().item():
            raise KvvizError(
                f"{name} computes something else with this model: its token {step.index + 1} is another, and its "
                f"logits are {delta:.3g} off, more than {dtype} rounds; {mode_named(name).account.advice}"
            )


def rounding(dtype: str) -> float:
    """Return the largest share of a logit that rounding in a dtype explains.

    Errors add up from layer to layer: over deep models they were seen to reach the square root of the dtype's step.
    """
    return 3 * math.sqrt(torch.finfo(getattr(torch, dtype)).eps)


def _margin(logits: torch.Tensor) -> float:
    """Return the smallest gap between the two best logits of any row; `logits` is (rows, vocabulary)."""
    best = logits.float().topk(2, dim=-1).values
    return (best[:, 0] - best[:, 1]).min().item()


def plain(value: object) -> object:
    """Return a tuple as a list, as JSON has it."""
    return list(value) if isinstance(value, tuple) else value


def grouped(rows: Sequence[LayerState]) -> list[LayerGroup]:
    """Merge layers in the same state into one entry, so that a model of a hundred equal layers needs only one."""
    groups: dict[LayerState, list[int]] = {}
    for row in rows:
        groups.setdefault(replace(row, index=0, state_bytes=0), []).append(row.index)
    return [
        cast(
            LayerGroup,
            {"indices": indices, **{name: plain(getattr(state, name)) for name in LayerFields.__annotations__}},
        )
        for state, indices in groups.items()
    ]
