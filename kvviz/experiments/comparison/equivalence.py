"""The equivalence check: the first pass, in which all modes take turns step by step and are compared at every step.

Each step is clocked by itself, so that a viewer of the **first look** sees the curves grow together; no figure of the
document is made of these seconds. Tokens, logits and layers are read between the clocked steps. Then a second, untimed
decode traces a sample of the steps, and counts the bytes of all tensors that outlive them.
"""

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
from kvviz.decoding.requirements import traced_steps
from kvviz.device.clock import no_collection
from kvviz.experiments.comparison.comparison_run import Checked, ComparisonRun
from kvviz.experiments.comparison.figures import reference_mode
from kvviz.experiments.comparison.records import CheckedStep, FirstLook, LayerFields, LayerGroup, LookedStep, Proof
from kvviz.models.text import TextStream


def check_equivalence(run: ComparisonRun) -> Iterator[FirstLook | Proof]:
    """Step all modes in lockstep, clock and compare each step; then trace what outlives it. Fills `run.checked`.

    Yields a record of the first look for each step, and after the last one a proof for each.
    """
    run.checked = {mode: Checked() for mode in run.work.modes}
    steps: list[dict[str, CheckedStep]] = []
    yield from _look(run, steps)
    yield from _trace(run, steps)


def _look(run: ComparisonRun, steps: list[dict[str, CheckedStep]]) -> Iterator[FirstLook]:
    """Take each step once in every mode and compare them; add a record by mode to `steps` for each."""
    reference = reference_mode(run.work.modes)
    order = sorted(run.work.modes, key=lambda name: name != reference)  # the reference steps first
    with no_collection():
        lanes = {name: _Lane(run, name) for name in order}
        for index in range(run.work.new_tokens):
            for lane in lanes.values():
                run.check_stop()
                lane.advance()
            compared = _compared(lanes, lanes[reference], run.loaded.dtype)
            if not compared:
                return
            steps.append(compared)
            yield {"t": "first_look", "i": index, "modes": {name: lanes[name].looked() for name in compared}}


def _trace(run: ComparisonRun, steps: Sequence[dict[str, CheckedStep]]) -> Iterator[Proof]:
    """Decode once more, untimed, and trace a sample of the steps; complete their records with what outlives them."""
    spread = run.loaded.spread
    # weights that are read anew for each forward are no tensors of the run, but can't be told from them
    traced = [] if spread and spread.read_anew else [mode for mode in run.work.modes if not mode_named(mode).elsewhere]
    traces = {mode: _Trace(run, mode) for mode in traced}
    for index, step in enumerate(steps):
        for name, record in step.items():
            run.check_stop()
            if name in traces:
                record["outliving"] = traces[name].outliving(index)
                run.checked[name].outliving.append(record["outliving"])
        yield {"t": "proof", "i": index, "modes": step}


class _Trace:
    """The second decode of one mode, whose sampled steps run under `LiveTensors`."""

    def __init__(self, run: ComparisonRun, mode: str) -> None:
        self._run, self._mode, self._keeps = run, mode, mode_named(mode).caches
        count = len(run.checked[mode].tokens)
        self._traced = traced_steps(count)
        self._live = LiveTensors(run.loaded.tensors)
        if self._keeps:
            with self._live:  # some modes allocate their cache when they are opened
                self._steps = run.decode(mode, steps=count)

    def outliving(self, index: int) -> int | None:
        """Take the step; return the bytes of the tensors that are alive after it, None for a step out of the sample.

        A mode that keeps nothing between its steps takes only those of the sample, each from the text so far.
        """
        if index not in self._traced:
            if self._keeps:
                next(self._steps)
            return None
        if self._keeps:
            return self._bytes_after(self._steps)
        text = self._run.text(self._mode, index)
        return self._bytes_after(self._run.decode(self._mode, steps=1, prompt=text))

    def _bytes_after(self, steps: Iterator[Step]) -> int:
        with self._live:
            step = next(steps)
        apart = [] if step.logits is None else [step.logits]
        made = self._live.live_bytes(*apart)
        return made + sum(row.allocated for row in layer_states(step.cache, counted=self._live.made))


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
    """One mode in the lockstep: its clocked decode, and what was compared."""

    def __init__(self, run: ComparisonRun, mode: str) -> None:
        super().__init__(run, mode)
        self._mode = mode_named(mode)
        self.checked = run.checked[mode]
        self.step: Step | None = None
        self.seconds = 0.0
        self._steps = run.clocked(mode)

    def advance(self) -> None:
        """Take one more step and read the cache, unless this mode's text has ended."""
        self.step = None
        if self.ended:
            return
        clocked = next(self._steps, None)
        if clocked is None:  # a server has ended its text
            self._ended = [True] * len(self._ended)
            return
        self.step, self.seconds = clocked.step, clocked.seconds
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
        self._layers = grouped(self.layers)

    def looked(self) -> LookedStep:
        """Return the step as the first look sends it."""
        s = round(self.seconds, 9)
        record: LookedStep = {"s": s, "ids": self.ids, "text": self.text, "piece": self.piece, "layers": self._layers}
        self.tell(record)
        return record

    def record(self) -> CheckedStep:
        """Return the step as the check sends it, without what outlives it."""
        checked = self.checked
        record: CheckedStep = {
            "ids": self.ids,
            "text": self.text,
            "layers": self._layers,
            "outliving": None,
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
    """Compare the step that the modes have just taken; return records by mode, without modes whose text has ended."""
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
