"""Holds the state of one running comparison: the work, the loaded model, the prompt, and the results of each part."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from kvviz.base.errors import KvvizError, Stopped
from kvviz.base.hashing import config_hash
from kvviz.base.records import LayerState
from kvviz.decoding.loading import Loaded
from kvviz.decoding.loop import Step, chooser, decode
from kvviz.decoding.modes import Mode, mode_named
from kvviz.device.clock import Timed, synchroniser, timed
from kvviz.device.disturbance import Disturbance, outrun, undisturbed
from kvviz.experiments.comparison.endpoint import EndpointLane
from kvviz.experiments.comparison.records import (
    MemoryAccount,
    ModeFields,
    ModelFields,
    Observed,
    Parts,
    Served,
    SpecFields,
    Speculation,
    Started,
)
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.kind import Spec
from kvviz.models.text import book


@dataclass
class Checked:
    """Results of the equivalence check for one mode. `tokens` has one row per step: the ids of the batch."""

    tokens: list[list[int]] = field(default_factory=list)
    layers: list[tuple[LayerState, ...]] = field(default_factory=list)
    cache_class: str | None = None
    outliving: list[int | None] = field(default_factory=list)  # live tensor bytes after each traced step, logits apart
    proposed: list[tuple[int, ...] | None] = field(default_factory=list)  # by a draft, as in a decode's Step
    max_delta: float | None = None
    divergence: int | None = None
    margin: float | None = None
    top_margins: list[float] = field(default_factory=list)  # one per step; only the reference mode has them


@dataclass
class TimedPasses:
    """Seconds of one mode's steps, one list per repeat, and what disturbed each repeat.

    `repeatable`: every pass chose the same tokens as the check.
    """

    repeats: list[list[float]] = field(default_factory=list)
    disturbances: list[Disturbance] = field(default_factory=list)
    repeatable: bool = True

    def add(self, seconds: list[float], found: Disturbance) -> list[int]:
        """Add a repeat. Return the numbers of the repeats whose record is new: its own, and those of earlier ones that
        took much longer than it although it was disturbed.
        """
        before = self.disturbances
        self.repeats.append(seconds)
        self.disturbances = [*before, found]
        times = outrun([sum(each) for each in self.repeats], [each.clean for each in self.disturbances])
        self.disturbances = [replace(each, outrun=of) for each, of in zip(self.disturbances, times, strict=True)]
        changed = [number for number, each in enumerate(before) if each != self.disturbances[number]]
        return [*changed, len(before)]

    @property
    def kept(self) -> list[list[float]]:
        """The repeats that figures are made from."""
        return undisturbed(self.repeats, (found.clean for found in self.disturbances))

    @property
    def disturbed(self) -> bool:
        """Whether other work disturbed every repeat, so that figures are made from disturbed ones."""
        return bool(self.disturbances) and all(found.clean is False for found in self.disturbances)

    @property
    def totals(self) -> list[float]:
        """Seconds of each kept repeat; of each repeat at all if a single one is kept, which has no spread."""
        return [sum(seconds) for seconds in (self.kept if self.kept[1:] else self.repeats)]


@dataclass
class ComparisonRun:
    """State shared by all parts of a comparison; each fills one table, keyed by mode: `checked`, `memory`, `passes`."""

    work: ComparisonSpec
    loaded: Loaded
    prompt: torch.Tensor  # (B, P)
    should_stop: Callable[[], bool] = lambda: False
    draft: Loaded | None = None
    key: str | None = field(default=None, repr=False)  # for the server of the next
    lane: EndpointLane | None = None  # of the mode that a server decodes
    checked: dict[str, Checked] = field(default_factory=dict)
    memory: dict[str, MemoryAccount] = field(default_factory=dict)
    passes: dict[str, TimedPasses] = field(default_factory=dict)
    parts: dict[str, Parts] = field(default_factory=dict)
    stopped_because: str = ""

    @property
    def prompt_tokens(self) -> int:
        return self.prompt.shape[1]

    def mode(self, name: str) -> Mode:
        """Return the row of one of the modes, with this comparison's budget if it evicts."""
        return self.work.mode(name, self.prompt_tokens + self.work.new_tokens)

    def decode(self, mode: str, *, steps: int | None = None, prompt: torch.Tensor | None = None) -> Iterator[Step]:
        """Start a new decode of one mode. The cache has the capacity for the whole run even if `steps` is smaller."""
        work = self.work
        if mode_named(mode).elsewhere:
            return (one.step for one in self._lane.clocked(steps))
        return decode(
            self.loaded.model,
            self.prompt if prompt is None else prompt,
            mode=self.mode(mode),
            new_tokens=work.new_tokens if steps is None else steps,
            choose=chooser(work.sampling),
            capacity=self.prompt_tokens + work.new_tokens,
            draft=self.draft.model if self.draft else None,
        )

    def text(self, mode: str, steps: int) -> torch.Tensor:
        """Return the prompt and the first so many tokens that the check chose: ids (B, P + steps)."""
        chosen = torch.tensor(self.checked[mode].tokens[:steps], dtype=self.prompt.dtype, device=self.prompt.device)
        return torch.cat([self.prompt, chosen.reshape(-1, self.work.batch).T], dim=1)

    def clocked(self, mode: str, *, steps: int | None = None) -> Iterator[Timed[Step]]:
        """Start a new decode of one mode, and time each step: here by the clock, elsewhere by its arrival."""
        if mode_named(mode).elsewhere:
            return self._lane.clocked(steps)
        return timed(self.decode(mode, steps=steps), synchroniser(*self.loaded.devices))

    @property
    def _lane(self) -> EndpointLane:
        if self.lane is None:
            work = self.work
            ids = self.prompt[0].tolist()
            self.lane = EndpointLane(work, self.loaded, ids, self.check_stop, self.key)
        return self.lane

    def served(self, mode: str) -> Served:
        """Return what is recorded of a server: None each for a mode that decodes here."""
        if not mode_named(mode).elsewhere:
            return {"arrivals_s": None, "tokens_per_chunk": None, "engine": None, "metrics": None, "kv_events": None}
        return self._lane.served(len(self.passes[mode].repeats))

    def observed(self, mode: str) -> Observed:
        """Return what the equivalence check and the memory accounting found of a mode."""
        checked, memory = self.checked[mode], self.memory.get(mode)
        allocator = memory["allocator"] if memory else None
        return {
            "identical": checked.divergence is None,
            "first_divergence": checked.divergence,
            "divergence_margin": checked.margin,
            "max_abs_logit_diff": checked.max_delta,
            "peak_bytes": allocator["peak"] if allocator else None,
            "peak_kind": allocator["kind"] if allocator else None,
        }

    def speculation(self, mode: str) -> Speculation:
        """Count what a draft proposed in the equivalence check: None each for a mode that verifies no proposals.

        A proposal is accepted if the model then chose that very token. `steps` are the forwards of the model.
        """
        checked = self.checked[mode]
        parts = self.parts.get(mode, {"usual_s": None, "verified": None})
        if not mode_named(mode).speculates:
            return {"accepted": None, "drafted": None, "steps": None, "tried": None, **parts}
        chosen = [row[0] for row in checked.tokens]
        accepted = sum(proposed is None for proposed in checked.proposed)
        rejected = sum(  # forwards one of whose proposals was: then no more of them is tried
            any(guess != token for guess, token in zip(proposed or (), chosen[step:], strict=False))
            for step, proposed in enumerate(checked.proposed)
        )
        return {
            "accepted": accepted,
            "drafted": sum(len(proposed or ()) for proposed in checked.proposed),
            "steps": len(checked.proposed) - accepted,
            "tried": accepted + rejected,
            **parts,
        }

    def close(self) -> None:
        """Close the connections to a server, if there are any."""
        if self.lane is not None:
            self.lane.close()

    def check_stop(self) -> None:
        """Raise Stopped if the run was asked to stop."""
        if self.should_stop():
            raise Stopped


def look(spec: Spec, loaded: Loaded) -> dict[str, Any]:
    """Return the first record of an experiment that is no comparison: what is measured, and where."""
    place, source = loaded.environment, loaded.source
    about = {"title": source.title, "weights": source.weights, "note": loaded.note}
    return {"t": "look", "spec": spec.to_dict(), **about, "device": place.device_name, "dtype": place.dtype}


def started(loaded: Loaded, spec: SpecFields, ids: list[int], modes: list[ModeFields], note: str = "") -> Started:
    """Return the first record of a comparison: what is decoded in which modes, and where; `ids` are the prompt's."""
    source, codec = loaded.source, loaded.codec
    model: ModelFields = {
        "id": source.model,
        "title": source.title,
        "weights": source.weights,
        "params": loaded.params,
        "layers": len(loaded.spec.layers),
        "context": loaded.spec.context,
        "end_ids": sorted(loaded.stop_ids),
        "note": note or loaded.note,
    }
    if loaded.spread:
        model["layer_devices"] = list(loaded.spread.layers)
    return {
        "t": "started",
        "spec": spec,
        "environment": asdict(loaded.environment),
        "config_hash": config_hash(source.config) if source.config else None,
        "model": model,
        "prompt": {
            "tokens": len(ids),
            "text": spec.get("prompt") or codec.decode(ids),
            "pieces": [codec.decode([i]) for i in ids],
        },
        "modes": modes,
    }


def encode_prompt(work: ComparisonSpec, loaded: Loaded) -> torch.Tensor:
    """Return the prompt as ids (B, P): the text's tokens in every row, or different seeded random tokens per row.

    The book's tokens start again where it ends.
    """
    if work.prompt is not None or work.filler == "book":
        row = loaded.codec.encode(book() if work.prompt is None else work.prompt)
        length = work.prompt_tokens or len(row)
        ids = torch.tensor([(row * -(-length // len(row)))[:length]] * work.batch)
    else:
        if loaded.spec.vocab_size is None:
            raise KvvizError("this model's config does not say how large its vocabulary is; give a prompt text instead")
        generator = torch.Generator().manual_seed(work.sampling.seed)
        size = (work.batch, work.prompt_tokens or 0)
        ids = torch.randint(loaded.spec.vocab_size, size, generator=generator)
    return ids.to(loaded.device)
