"""The spec of a comparison: one piece of work, decoded in several modes. Standard library only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from kvviz.base.errors import KvvizError
from kvviz.base.records import DTYPES, SPLIT, Sampling, check_whole
from kvviz.base.settings import Limits
from kvviz.caches.designs import DESIGNS, tokens_of
from kvviz.decoding.endpoint.address import base_url, event_addresses
from kvviz.decoding.modes import MODES, check_modes, mode_named
from kvviz.decoding.requirements import Work, each_pass, foresee
from kvviz.experiments.kind import Device, Estimate, Record, Spec
from kvviz.experiments.limits import check_sizes
from kvviz.models.sources import find_source, first_model, usual_draft
from kvviz.models.text import STORY

WEIGHTS = ("auto", "bundled", "random", "hub", "local")
ATTENTION = ("sdpa", "eager")
OPENING_TOKENS = 192  # enough new tokens for the two curves to part
PRECISION = 0.05  # what speed-ups and curves are to be known to, unless a number of passes is asked for
BUDGETED = tuple(name for name, design in DESIGNS.items() if design.budget)
FILLERS = ("random", "book", "text")
LIMITS = {"new_tokens": 32_768, "prompt_tokens": 131_072, "batch": 64, "repeats": 50, "warmup": 20}


@dataclass(frozen=True)
class ComparisonSpec(Spec, Work):
    """One piece of work, decoded in several modes. A form fills it in, and the queue holds it.

    The first of its warm-up passes is the equivalence check.
    """

    kind: ClassVar[str] = "comparison"
    called: ClassVar[str] = "a comparison"

    stop_at_eos: bool = False
    stop_text: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model.strip():
            raise KvvizError("a comparison needs a model: a catalog id such as gpt2, a folder or a Hugging Face id")
        both = self.filler == "text"
        if both != (self.prompt is not None and self.prompt_tokens is not None) or self.prompt is self.prompt_tokens:
            raise KvvizError("give either a prompt text or a number of prompt tokens")
        if self.prompt_tokens is not None:
            check_whole("prompt_tokens", self.prompt_tokens, 1, LIMITS["prompt_tokens"])
        if self.prompt is not None and (not isinstance(self.prompt, str) or not self.prompt):
            raise KvvizError("the prompt is empty; it has to hold at least one character")
        for name in ("new_tokens", "batch", "repeats", "warmup"):
            check_whole(name, getattr(self, name), 1, LIMITS[name])
        if self.precision is not None and not _is_number(self.precision, 0.001, 1):
            raise KvvizError(f"precision is {self.precision!r}; it is a share from 0.001 to 1, such as 0.05")
        if self.budget_s is not None and not _is_number(self.budget_s, 0, 1e6):
            raise KvvizError(f"budget_s is {self.budget_s!r}; it is a number of seconds from 0 to 1,000,000")
        if self.draft is not None and (not isinstance(self.draft, str) or not self.draft.strip()):
            raise KvvizError("draft is a model that proposes tokens, such as mini-gpt2")
        for name, allowed in (("weights", WEIGHTS), ("dtype", DTYPES), ("attn", ATTENTION), ("filler", FILLERS)):
            if getattr(self, name) not in allowed:
                raise KvvizError(f"{name} is {getattr(self, name)!r}; it is one of {', '.join(allowed)}")
        single = [name for name in self.modes if name in MODES and not MODES[name].batches]
        if self.batch > 1 and single:
            raise KvvizError(f"{single[0]} decodes one sequence, not {self.batch}: take batch 1 or other modes")
        if self.device == SPLIT:
            check_modes([name for name in self.modes if name in MODES], None, SPLIT)
        if self.kv_events is not None:
            event_addresses(self.kv_events)
        if self.endpoint is not None:
            base_url(self.endpoint)
        elif any(name in MODES and MODES[name].elsewhere for name in self.modes):
            raise KvvizError("endpoint needs the address of a server, such as --endpoint http://localhost:8000/v1")
        if self.cache_budget is not None:
            tokens_of(self.cache_budget, 1)
        if (self.cache_budget is not None or self.pyramid) and not set(BUDGETED) & set(self.modes):
            raise KvvizError(f"none of these modes keeps a budget of tokens; those that do are {', '.join(BUDGETED)}")
        if not self.modes or len(set(self.modes)) != len(self.modes):
            raise KvvizError("a comparison needs at least one mode, each named once, such as uncached,cached")

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Read what `to_dict` wrote; `sampling` is a nested object."""
        if isinstance(data, Mapping) and isinstance(data.get("sampling"), Mapping):
            data = {**data, "sampling": Sampling(**data["sampling"])}
        return super().from_dict(data)


def _is_number(value: object, least: float, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def how_often(repeats: int | None, precision: float | None) -> dict[str, Any]:
    """Return a spec's `repeats` and `precision`: a number of passes alone is meant exactly, else PRECISION holds."""
    wanted = PRECISION if repeats is None and precision is None else precision
    return {"repeats": 3 if repeats is None else repeats, "precision": wanted or None}


def comparison_like(spec: Spec, **changes: Any) -> ComparisonSpec:
    """Return a comparison with the fields of the same names of another spec, apart from the `changes`."""
    alike = {field.name: getattr(spec, field.name) for field in fields(ComparisonSpec) if hasattr(spec, field.name)}
    return ComparisonSpec(**{**alike, **changes})


def check(spec: ComparisonSpec, limits: Limits) -> None:
    """Refuse an unknown mode or model, and sizes above this server's limits. Raises KvvizError."""
    for name in spec.modes:
        mode_named(name)
    check_sizes(spec, limits)
    find_source(spec.model, spec.weights)
    if any(mode_named(name).drafts for name in spec.modes):
        find_source(spec.draft or usual_draft(spec.model))


def opening(model: str) -> ComparisonSpec:
    """Make the comparison of a model that the live page offers when it opens."""
    return ComparisonSpec(model, prompt=STORY, new_tokens=OPENING_TOKENS, precision=PRECISION)


def rehearsal() -> ComparisonSpec:
    """Make a short comparison of the model that the live page starts with."""
    return ComparisonSpec(first_model(), prompt=STORY, new_tokens=8, repeats=1)


def pass_seconds(work: ComparisonSpec, device: Device) -> dict[str, float] | None:
    """Estimate the seconds of a pass of each mode; None if only loading tells the model's size."""
    source = find_source(work.model, work.weights)
    return None if source.params is None or source.spec is None else each_pass(source, work, device)


def estimate(spec: ComparisonSpec, device: Device, earlier: Sequence[Record] = ()) -> Estimate | None:
    """Estimate the seconds of the comparison and of each mode's pass; None for a model of unknown size.

    A record of the predicted curves among `earlier` ones sets it right: then they and the estimate are one prediction.
    None as well for a model that is to be split: the rates are those of one device.
    """
    if spec.device == SPLIT:
        return None
    source = find_source(spec.model, spec.weights)
    if source.params is None or source.spec is None:
        return None
    predicted = next((record for record in earlier if record["t"] == "predicted"), None)
    found = foresee(source, spec, device, predicted=predicted)
    return Estimate(found.whole, found.passes, found.records)
