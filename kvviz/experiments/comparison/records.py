"""Types of a comparison's records and document, with the values that an imported file may hold in each field.

Both mypy and the strict reader of files (`kvviz.base.checks.check_of`) take the fields from these types.
docs/json.md explains the fields. Standard library only.
"""

from dataclasses import asdict
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, TypedDict

from kvviz.base.checks import Absent, Unfit, check_of, fields_of, list_of, number, short_name, text, whole
from kvviz.base.records import LONGEST_NOTE, Environment, Sampling
from kvviz.cost.flops import Rates
from kvviz.cost.predict import Paces
from kvviz.cost.step_estimate import StepEstimate
from kvviz.decoding.endpoint.kv_events import Told

MOST_LAYERS = 10_000

Name = Annotated[str, short_name]
Count = Annotated[int, whole()]
Positive = Annotated[int, whole(1)]
Size = Annotated[float, number(0)]
Share = Annotated[float, number(0, 1)]
Seconds = Annotated[float, number(0, 1e6)]
Shape = Annotated[list[int], list_of(whole(), 8)]
Short = Annotated[str, text(20)]
Piece = Annotated[str, text(1000)]
Prompt = Annotated[str, text(2_000_000)]
Hash = Annotated[str, text(64)]


# --- fields that the records and the document share; where a dataclass travels as JSON, its own fields ----------

EnvironmentFields: TypeAlias = Annotated[dict[str, Any], fields_of(Environment)]
SamplingFields: TypeAlias = Annotated[dict[str, Any], fields_of(Sampling)]
PacesFields: TypeAlias = Annotated[dict[str, Any], fields_of(Paces)]
RatesFields: TypeAlias = Annotated[dict[str, Any], fields_of(Rates)]
EstimateFields: TypeAlias = Annotated[dict[str, Any], fields_of(StepEstimate)]


class AllocatorAccount(TypedDict):
    """`kvviz.device.allocator.Account` as JSON; bytes."""

    kind: Annotated[str, text(40)]
    kept: Annotated[int, number()] | None
    peak: Annotated[int, number()] | None
    reserved: Annotated[list[int], list_of(whole(), 2)] | None


class MemoryAccount(TypedDict):
    """Three counts of the bytes in a mode's cache after the last step; `reasons` holds sentences that explain them."""

    formula: Count
    tensors: Count
    storages: Count
    allocator: AllocatorAccount | None
    reasons: NotRequired[Annotated[list[str], list_of(text(1000), 20)]]


class LayerFields(TypedDict):
    """A layer's cache as it is now (`kvviz.base.records.LayerState`)."""

    kind: Short
    key_shape: Shape
    value_shape: Shape
    dtype: Short
    seen: Count
    held: Count
    nbytes: Count
    allocated: Count


class LayerGroup(LayerFields):
    """Layers in the same state, merged into one entry, so that a model of a hundred equal layers needs only one."""

    indices: Annotated[list[int], list_of(whole(0, MOST_LAYERS), MOST_LAYERS)]


_GROUP = check_of(LayerGroup)


def _group(value: object, name: str) -> LayerGroup:
    """Check a group. Old recordings hold a list of values without field names, in the same order."""
    if isinstance(value, list):
        names = ("indices", *LayerFields.__annotations__)
        if len(value) != len(names):
            raise Unfit(f"{name} has to hold groups of {len(names)} fields")
        value = dict(zip(names, value, strict=True))
    return _GROUP(value, name)


def layer_groups(value: object, name: str) -> list[LayerGroup]:
    """Check a list of groups, with at most MOST_LAYERS layers in all, since a page draws a row for each."""
    groups: list[LayerGroup] = list_of(_group, MOST_LAYERS)(value, name)
    if sum(len(group["indices"]) for group in groups) > MOST_LAYERS:
        raise Unfit(f"{name} has to speak of at most {MOST_LAYERS:,} layers")
    return groups


# --- the records, in the order in which they are sent -----------------------------------------------------------


class SpecFields(TypedDict):
    """`ComparisonSpec` as JSON; a watched run has only the counts, with a `warmup` of 0."""

    kind: NotRequired[Short]
    model: NotRequired[Piece]
    modes: NotRequired[Annotated[list[str], list_of(short_name, 40)]]
    weights: NotRequired[Short]
    prompt: NotRequired[Prompt | None]
    prompt_tokens: NotRequired[Positive | None]
    filler: NotRequired[Short]
    dtype: NotRequired[Short]
    device: NotRequired[Annotated[str, text(40)]]
    attn: NotRequired[Short]
    draft: NotRequired[Piece | None]
    endpoint: NotRequired[Piece | None]
    endpoint_model: NotRequired[Piece | None]
    kv_events: NotRequired[Piece | None]
    cache_budget: NotRequired[Short | None]
    pyramid: NotRequired[bool]
    sampling: NotRequired[SamplingFields]
    stop_at_eos: NotRequired[bool]
    stop_text: NotRequired[Piece]
    precision: NotRequired[Share | None]
    budget_s: NotRequired[Seconds | None]
    new_tokens: Positive
    batch: Annotated[int, whole(1, 10**6)]
    repeats: Count
    warmup: Count


class ModelFields(TypedDict):
    id: Annotated[str, text(300)]
    title: Annotated[str, text(300)]
    weights: Short
    params: Count
    layers: Annotated[int, whole(0, MOST_LAYERS)]
    context: Count | None
    end_ids: NotRequired[Annotated[list[int], list_of(whole(), 100)]]
    note: NotRequired[Annotated[str, text(LONGEST_NOTE)]]
    layer_devices: NotRequired[Annotated[list[Short], list_of(check_of(Short), MOST_LAYERS)]]


class PromptFields(TypedDict):
    tokens: Count
    text: Prompt
    pieces: NotRequired[Annotated[list[str], list_of(text(1000))]]


class ModeFields(TypedDict):
    name: Name
    title: Annotated[str, text(60)]
    summary: Annotated[str, text(300)]
    exact: bool
    speculates: NotRequired[bool]


class Started(TypedDict):
    t: Literal["started"]
    id: NotRequired[Annotated[str, text(80)]]
    spec: SpecFields
    environment: EnvironmentFields
    config_hash: NotRequired[Hash | None]
    model: ModelFields
    prompt: PromptFields
    modes: Annotated[list[ModeFields], list_of(check_of(ModeFields), 40)]


class Predicted(TypedDict):
    """The predicted seconds of each step by mode, sent before the first timed pass.

    `tracing_s` is how much longer a step takes of which every operation is traced.
    """

    t: Literal["predicted"]
    paces: PacesFields
    step_s: dict[str, list[Seconds]]
    tracing_s: NotRequired[Size]


# The proposals that a step's forward verified, as text; None if an earlier forward had computed the token's logits.
Proposed = Annotated[list[Piece], list_of(check_of(Piece), 64)] | None


class LookedStep(TypedDict):
    """One mode's step of the first look: its seconds, clocked once, and what it left in the cache."""

    s: Seconds
    ids: Annotated[list[int], list_of(whole(), 64)]
    text: Piece
    piece: Piece
    layers: Annotated[list[LayerGroup], layer_groups]
    where: NotRequired[Annotated[str, text(200)]]
    proposed: NotRequired[Proposed]


class FirstLook(TypedDict):
    t: Literal["first_look"]
    i: Count
    at: NotRequired[Size]
    modes: dict[str, LookedStep]


class CheckedStep(TypedDict):
    """One mode's step of the equivalence check; a field is None if it was not observed, as in a watched run."""

    ids: Annotated[list[int], list_of(whole(), 64)]
    text: Piece
    piece: NotRequired[Piece]
    layers: Annotated[list[LayerGroup], layer_groups]
    outliving: Count | None
    delta: Size | None
    divergence: Count | None
    margin: NotRequired[Size | None]
    where: NotRequired[Annotated[str, text(200)]]
    proposed: NotRequired[Proposed]


class Proof(TypedDict):
    t: Literal["proof"]
    i: Count
    at: NotRequired[Size]
    modes: dict[str, CheckedStep]


class Memory(MemoryAccount):
    t: Literal["memory"]
    mode: Name
    at: NotRequired[Size]


class Pass(TypedDict):
    """The start of a timed pass; a negative `repeat` is a warm-up."""

    t: Literal["pass"]
    mode: Name
    repeat: Annotated[int, whole(-100, 1000)]
    at: NotRequired[Size]


# This type can't be written as a class, since `from` is a Python keyword.
Times = TypedDict(
    "Times",
    {
        "t": Literal["times"],
        "mode": Name,
        "repeat": Annotated[int, whole(-100, 1000)],
        "from": Count,
        "s": list[Seconds],
        "at": NotRequired[Size],
    },
)


class Clocked(TypedDict):
    """What disturbed a timed pass (`kvviz.device.disturbance`); `clean` is None if the system does not tell."""

    t: Literal["clocked"]
    mode: Name
    repeat: Annotated[int, whole(0, 1000)]
    clean: bool | None
    waited: NotRequired[Share | None]
    stolen: NotRequired[Share | None]
    others: NotRequired[Size | None]
    switches: NotRequired[Count | None]
    throttled: NotRequired[Count | None]
    slowed: NotRequired[Size | None]
    outrun: NotRequired[Size | None]
    at: NotRequired[Size]


class PassCounts(TypedDict):
    """How many timed passes nothing disturbed, how many were disturbed, and why no more were timed.

    The figures are made from the undisturbed passes, or from all if there are none. A pass on a system that can't tell
    counts as clean.
    """

    clean: Count
    disturbed: Count
    stopped_because: Annotated[str, text(300)]


Interval = Annotated[list[float], list_of(number(0), 2)]


ShapeName: TypeAlias = Literal["flat", "climb", "fall"]  # of the decode steps, as far as a 95% interval tells it


class Headline(TypedDict):
    """A run's figures without its curves; `identical` is None if there was no run to compare with."""

    mode: Name
    identical: bool | None
    first_divergence: Count | None
    max_abs_logit_diff: Size | None
    ttft_s: Size
    itl_s: NotRequired[Size | None]
    itl_mean_s: NotRequired[Size | None]
    itl_p99_s: NotRequired[Size | None]
    tokens_per_s: Size
    total_s: Size
    speedup: NotRequired[Size | None]
    peak_bytes: NotRequired[Count | None]
    repeatable: NotRequired[bool]
    passes: NotRequired[PassCounts | None]
    speedup_interval: NotRequired[Interval | None]
    shape: NotRequired[ShapeName | None]


class Figures(TypedDict):
    t: Literal["figures"]
    runs: Annotated[list[Headline], list_of(check_of(Headline), 40)]


class Done(TypedDict):
    t: Literal["done"]
    message: NotRequired[Piece]


Record: TypeAlias = Started | Predicted | FirstLook | Proof | Memory | Pass | Times | Clocked | Figures | Done


# --- the document -----------------------------------------------------------------------------------------------


class Layer(LayerFields):
    """A layer's format and its state after the last step; a field is None if it can't be rebuilt from the records.

    `device` is where its weights lie in a model that was to be split, "disk" among others; else None.
    """

    index: Annotated[int, whole(0, MOST_LAYERS)]
    kv_heads: Count | None
    key_dim: Count | None
    value_dim: Count | None
    window: Count | None
    state_bytes: Count | None
    device: Annotated[Short | None, Absent(None)]


class Curves(TypedDict):
    """The figures of one mode that are computed from the seconds of its steps."""

    ttft_s: Seconds
    itl_s: Seconds | None
    itl_mean_s: Seconds | None
    itl_p99_s: Annotated[Seconds | None, Absent(None)]
    tokens_per_s: Size
    total_s: Annotated[float, number(1e-9, 1e9)]
    step_s: list[Seconds]
    step_s_q1: list[Seconds]
    step_s_q3: list[Seconds]


class PredictionFields(TypedDict):
    """A run's predicted steps, with their error and bias; None if nothing was predicted."""

    predicted_s: Annotated[list[Seconds] | None, Absent(None)]
    prediction_error: Annotated[Size | None, Absent(None)]
    prediction_bias: Annotated[Annotated[float, number(-1)] | None, Absent(None)]


_Ids = list_of(whole())


def _tokens(value: object, name: str) -> object:
    """Check a flat list of ids, or one list of ids per sequence."""
    nested = isinstance(value, list) and value and isinstance(value[0], list)
    return list_of(_Ids, 10_000)(value, name) if nested else _Ids(value, name)


def _texts(value: object, name: str) -> object:
    """Check a text, or one text per sequence."""
    return (list_of(text(1_000_000), 10_000) if isinstance(value, list) else text(1_000_000))(value, name)


class Observed(TypedDict):
    """What the equivalence check and the allocator found of a mode."""

    identical: bool
    first_divergence: Count | None
    divergence_margin: Annotated[Size | None, Absent(None)]
    max_abs_logit_diff: Size | None
    peak_bytes: Annotated[int, number()] | None
    peak_kind: Name | None


class Verified(TypedDict):
    """How many forwards verified this number of `proposals`; seconds of drafting these, and of one such forward."""

    proposals: Annotated[int, whole(0, 64)]
    forwards: Count
    draft_s: Seconds
    forward_s: Seconds


class Parts(TypedDict):
    """Seconds of speculation's parts, clocked by themselves; `usual_s` is the model's forward of one token."""

    usual_s: Annotated[Annotated[float, number(1e-9, 1e9)] | None, Absent(None)]
    verified: Annotated[list[Verified] | None, Absent(None)]


class Speculation(Parts):
    """Counts of one pass in a mode that verifies a draft's proposals; None for any other mode.

    `accepted` of the `drafted` tokens stand in the text; `steps` are the forwards of the model, the prefill included.
    `tried` counts the drafted tokens that the model accepted or rejected: those after a rejected one are neither.
    """

    accepted: Annotated[Count | None, Absent(None)]
    drafted: Annotated[Count | None, Absent(None)]
    steps: Annotated[Count | None, Absent(None)]
    tried: Annotated[Count | None, Absent(None)]


class EngineFields(TypedDict):
    """What a server says of itself and of one answer; the tokens are its own counts, None where it does not tell."""

    name: Name | None
    version: Annotated[str, text(60)] | None
    model: Annotated[str, text(300)]
    api: Literal["completions", "chat"]
    finish: Annotated[str, text(40)]
    prompt_tokens: Count | None
    completion_tokens: Count | None
    cached_tokens: Count | None


class PolledFields(TypedDict):
    """The figures of an engine while it answered, so many seconds after the request."""

    at_s: Seconds
    figures: dict[str, Size]


class CalculatedFields(TypedDict):
    """Bytes by the calculator, in the engine's view: of the capacity that it states, and of the sequence it decoded.

    As if the server had the comparison's model in the comparison's precision.
    """

    view: Annotated[str, text(40)]
    dtype: Short
    capacity_tokens: Positive
    tokens: Positive
    capacity_bytes: Count
    sequence_bytes: Count


class MetricsFields(TypedDict):
    """The figures of an engine before the first request, during one and after the last, by kvviz's names for them.

    `unknown` are metrics of a cache whose names kvviz does not know.
    """

    before: dict[str, Size]
    after: dict[str, Size]
    polled: Annotated[list[PolledFields], Absent([])]
    unknown: Annotated[list[Annotated[str, text(200)]], Absent([])]
    calculated: Annotated[CalculatedFields | None, Absent(None)]


class Served(TypedDict):
    """What is known of the mode `endpoint` alone; None for any other mode.

    `arrivals_s` are the seconds from the request to each piece of text, `tokens_per_chunk` how many tokens it brought.
    """

    arrivals_s: Annotated[list[Seconds] | None, Absent(None)]
    tokens_per_chunk: Annotated[list[Count] | None, Absent(None)]
    engine: Annotated[EngineFields | None, Absent(None)]
    metrics: Annotated[MetricsFields | None, Absent(None)]
    kv_events: Annotated[Told | None, Absent(None)]


class HeldBytes(TypedDict):
    """Bytes after each step: of the cache, of the storages that it lies in, of all that outlives a traced step."""

    cache_bytes: list[Count] | None
    allocated_bytes: list[Count] | None
    outliving_bytes: Annotated[list[Count | None] | None, Absent(None)]


class Run(Curves, PredictionFields, Observed, Speculation, Served, HeldBytes):
    id: Annotated[str, text(120)]
    mode: Name
    exact: bool
    token_ids: Annotated[list[int] | list[list[int]], _tokens]
    text: Annotated[str | list[str], _texts]
    top_margin: Annotated[list[Size] | None, Absent(None)]
    repeatable: Annotated[bool, Absent(True)]
    cache_class: Annotated[str, text(100)] | None
    layers: Annotated[list[Layer], list_of(check_of(Layer), MOST_LAYERS)]
    memory: Annotated[MemoryAccount | None, Absent(None)]
    speedup: Size | None
    passes: Annotated[PassCounts | None, Absent(None)]
    speedup_interval: Annotated[Interval | None, Absent(None)]
    shape: Annotated[ShapeName | None, Absent(None)]
    estimate: Annotated[EstimateFields | None, Absent(None)]


class Document(TypedDict):
    """A whole comparison."""

    id: Annotated[str, text(80)]
    environment: EnvironmentFields
    rates: Annotated[RatesFields | None, Absent(None)]
    paces: Annotated[PacesFields | None, Absent(None)]
    model: Piece
    weights: Short
    config_hash: Annotated[Hash | None, Absent(None)]
    prompt: Annotated[Prompt | None, Absent(None)]
    prompt_tokens: Positive
    new_tokens: Positive
    batch: Annotated[int, whole(1, 10_000)]
    warmup: Annotated[int, whole(0, 1000)]
    repeats: Annotated[int, whole(1, 1000)]
    sampling: Annotated[SamplingFields, Absent(asdict(Sampling()))]
    reference: Name
    identical: bool
    runs: Annotated[list[Run], list_of(check_of(Run), 40)]


class Result(TypedDict):
    """The last record that a comparison yields; the feed sends `Figures` and `Done` instead."""

    t: Literal["done"]
    document: Document
