"""What is asked of a decode, and the bytes and seconds that it needs, before anything is loaded. No torch here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.base.records import Sampling
from kvviz.base.words import human
from kvviz.cost.flops import Rates, estimated, prefill, working_bytes
from kvviz.cost.shape import Shape
from kvviz.cost.step_estimate import OPERATIONS_PER_LAYER, Model
from kvviz.decoding.modes import Mode, mode_named, mode_within
from kvviz.memory.formula import DTYPE_BYTES, logits_bytes, peak_cache_bytes
from kvviz.models.sources import Source
from kvviz.models.spec import ModelSpec
from kvviz.models.text import ByteCodec

TRACED = 32  # steps of a pass in which every operation is traced,
FIRST_TRACED = 8  # of which so many are the first


@dataclass(frozen=True)
class Work:
    """One piece of work for a loaded model: the prompt is a text, or `prompt_tokens` tokens of the `filler`.

    The `filler` is "random" (seeded), "book", or "text": the prompt's own, repeated or cut to that length. `warmup`
    counts the full passes before the measured `repeats`. With a `precision`, more passes follow until the speed-up and
    the curves are known to that share of their size, or until `budget_s` seconds of timed passes are used (None: half
    as long again as the first `repeats` take). `draft` is the model that proposes tokens in a mode that drafts (None:
    `usual_draft`). `endpoint` is the address of the server that decodes in the mode of that name, and `endpoint_model`
    what it calls the model (None: its only one); `kv_events` is where it publishes its cache's events, and after a
    comma where it repeats them. `cache_budget` is what designs that evict keep of each sequence,
    "128" tokens or "25%" of prompt and new tokens (None: each design's own); as a `pyramid`, lower layers keep more of
    it than higher ones. A `kvviz.experiments.comparison.spec.ComparisonSpec` is such work, checked; every other
    experiment has a method that returns one.
    """

    model: str
    modes: tuple[str, ...] = ("uncached", "cached")
    weights: str = "auto"
    prompt: str | None = None
    prompt_tokens: int | None = None
    filler: str = "random"
    new_tokens: int = 32
    batch: int = 1
    repeats: int = 3
    warmup: int = 1
    precision: float | None = None
    budget_s: float | None = None
    dtype: str = "float32"
    device: str = "auto"
    attn: str = "sdpa"
    draft: str | None = None
    endpoint: str | None = None
    endpoint_model: str | None = None
    kv_events: str | None = None
    cache_budget: str | None = None
    pyramid: bool = False
    sampling: Sampling = Sampling()  # noqa: RUF009, frozen

    def mode(self, name: str, tokens: int) -> Mode:
        """Return the row of one of the modes for texts of so many tokens. Raises KvvizError for an unknown name."""
        return mode_within(name, self.cache_budget, tokens, pyramid=self.pyramid)


@dataclass(frozen=True)
class Needs:
    """Bytes that a comparison needs on its device: weights, every mode's cache at full length, logits, `working`.

    `working` are the intermediate results of its longest forward; 0 for a model whose work can't be counted.
    """

    weights: int
    caches: int
    logits: int
    working: int = 0

    @property
    def total(self) -> int:
        """Sum of all four."""
        return self.weights + self.caches + self.logits + self.working

    def check(self, free: int, device: str, share: float = 1.0) -> None:
        """Raise KvvizError, with the figures, for work that needs more than this share of the free bytes."""
        if self.total > share * free:
            part = f"; one piece of work may take {human(share * free)} of them" if share < 1 else ""
            raise KvvizError(
                f"this choice needs {human(self.total)} (weights {human(self.weights)}, caches {human(self.caches)}, "
                f"logits {human(self.logits)}, intermediate results {human(self.working)}), and {device} has "
                f"{human(free)} free{part}: take a smaller model, a shorter run or half-precision weights"
            )


def usual_dtype(params: int | None, capability: str | None) -> str:
    """Return the dtype to start with: bfloat16 for over 1e9 parameters on a card that computes in it, else float32.

    NVIDIA's cards compute in bfloat16 from compute capability 8.0 on.
    """
    has_it = capability is not None and float(capability) >= 8
    return "bfloat16" if has_it and (params or 0) > 10**9 else "float32"


def prompt_length(work: Work) -> int:
    """Upper limit of the prompt's tokens; a text has no more tokens than bytes."""
    return work.prompt_tokens or len(ByteCodec(None).encode(work.prompt or ""))


def size_of(source: Source) -> tuple[ModelSpec, int]:
    """Return the spec and the parameter count of a model. Raises KvvizError if its config has not been fetched yet."""
    spec = source.spec
    if spec is None or source.params is None:
        raise KvvizError(f"the size of {source.model} is not known before its config is fetched")
    return spec, source.params


def needs(source: Source, work: Work) -> Needs:
    """Sum up the weights, the caches of the equivalence check (all modes at once), their logits and one forward's work.

    That forward reads the prompt, or the whole text if a mode reads it again at every step.
    """
    tokens = prompt_length(work) + work.new_tokens
    again = any(mode_named(name).caches is False for name in work.modes)
    shape = estimated(source.config)
    filling = sum(mode_named(name).fills for name in work.modes)
    spec, params = size_of(source)
    return Needs(
        weights=params * DTYPE_BYTES[work.dtype],
        caches=filling * peak_cache_bytes(spec, tokens, work.batch, work.dtype),
        logits=len(work.modes) * logits_bytes(spec, work.batch, work.dtype),
        working=_working(shape, work, tokens if again else prompt_length(work)),
    )


def _working(shape: Shape | None, work: Work, tokens: int) -> int:
    if shape is None:
        return 0
    return working_bytes(shape, prefill(shape, tokens, work.batch), work.dtype, eager=work.attn == "eager")


def traced_steps(count: int) -> frozenset[int]:
    """Choose the steps in which the check traces every operation: the first ones, some spread, and the last."""
    if count <= TRACED:
        return frozenset(range(count))
    spread = TRACED - FIRST_TRACED
    later = (FIRST_TRACED - 1 + round(k * (count - FIRST_TRACED) / spread) for k in range(1, spread + 1))
    return frozenset([*range(FIRST_TRACED), *later])


def each_pass(source: Source, work: Work, device: Mapping[str, Any]) -> dict[str, float]:
    """Estimate one pass of each mode (seconds) at the device's measured rates."""
    model = Model(*size_of(source), estimated(source.config or {}))
    size = (prompt_length(work), work.new_tokens, work.dtype, Rates(**device["rates"]))
    how = (work.batch, device.get("device", work.device), work.dtype)
    return {
        name: model.pass_seconds(*size, caches=mode.caches is not False, batch=work.batch, calls=mode.calls_of(*how))
        for name, mode in ((name, mode_named(name)) for name in dict.fromkeys(work.modes))
    }


@dataclass(frozen=True)
class Foreseen:
    """Estimated seconds of a comparison by its parts: a pass of each mode, and each record of the untimed parts.

    `first_look` and `proof` have a record a step, `memory` one a mode. The first look is a pass of all modes; the proof
    is one of the modes with a cache and the traced steps of the others. The account of the memory reads the whole text,
    with a cache twice, and a prompt and two steps.
    """

    passes: Mapping[str, float]
    records: Mapping[str, float]
    whole: float


def foresee(
    source: Source,
    work: Work,
    device: Mapping[str, Any],
    *,
    watched: bool = True,
    predicted: Mapping[str, Any] | None = None,
) -> Foreseen:
    """Estimate a comparison at the device's measured rates; the first look has records if somebody has `watched` it.

    With the comparison's record of its `predicted` curves, a pass takes what these add up to.
    """
    passes, scale = each_pass(source, work, device), 1.0
    if predicted is not None:
        known = {mode: sum(seconds) for mode, seconds in predicted["step_s"].items() if mode in passes}
        scale = sum(known.values()) / sum(passes[mode] for mode in known)
        passes = {mode: known.get(mode, seconds * scale) for mode, seconds in passes.items()}
    model, rates = Model(*size_of(source), estimated(source.config or {})), Rates(**device["rates"])
    traced = len(model.spec.layers) * OPERATIONS_PER_LAYER / 2 * device.get("tracing_s", 0.0)
    traced = traced if predicted is None else predicted["tracing_s"]

    def forwards(prompt: int, count: int, mode: str) -> float:
        caches = mode_named(mode).caches is not False
        calls = mode_named(mode).calls_of(work.batch, device.get("device", work.device), work.dtype)
        return model.pass_seconds(prompt, count, work.dtype, rates, caches=caches, batch=work.batch, calls=calls)

    prompt, one = prompt_length(work), sum(passes.values())
    text = prompt + work.new_tokens - 1
    sample = len(traced_steps(work.new_tokens))
    again = sum(s * (1 if mode_named(mode).caches else sample / work.new_tokens) for mode, s in passes.items())
    look, proof = one, again + len(passes) * sample * traced
    memory = sum(
        2 * forwards(text, 1, mode) + forwards(prompt, 3, mode) if mode_named(mode).caches else forwards(text, 1, mode)
        for mode in passes
    )
    memory *= scale
    whole = look + proof + memory + one * (work.warmup - 1 + work.repeats)
    first, second = (look, proof) if watched else (0.0, look + proof)
    records = {"first_look": first / work.new_tokens, "proof": second / work.new_tokens, "memory": memory / len(passes)}
    return Foreseen(passes, records, whole)
