"""The decoding modes: one row per mode, each of which opens a forward for the decode loop.

Every mode computes the head for the last position only, as a production decoder does.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kvviz.base.errors import KvvizError
from kvviz.base.records import SPLIT
from kvviz.caches import formula
from kvviz.caches.designs import DESIGNS, EVERY_TOKEN, LEFT_OUT, RING, Account, Design, tokens_of
from kvviz.caches.own_designs import blamed
from kvviz.decoding.endpoint.engines import title_of_server
from kvviz.decoding.scratch.design import check_design as check_scratch_design
from kvviz.models.family_facts import facts_of

if TYPE_CHECKING:
    import torch
    from transformers import Cache, PreTrainedModel
    from transformers.cache_utils import Fp8QuantizedLayer

LARGEST = 16  # sequences up to which the compiled step is faster than torch's matrix products
Config = Mapping[str, object]


class Forward(Protocol):
    """The forward of one run. If it has a method `prepare(batch)`, the loop calls it before the clock starts.

    One that has a say in which token is chosen has a method `choosing(choose)`, which returns how the loop chooses.
    One whose `reads_ids` is False needs the new tokens alone, so the loop does not join them to the `ids`.
    """

    def __call__(self, ids: "torch.Tensor", new: "torch.Tensor") -> "tuple[torch.Tensor, object]":
        """Return the logits (B, vocabulary) of the last position and the cache that the run keeps (or None).

        `ids` (B, T) is the whole sequence so far; `new` (B, t) are its tokens that no forward has processed yet.
        """


Opener = Callable[..., Forward]  # (model, tokens of each sequence): a fresh forward; one that drafts also takes `draft`


@dataclass(frozen=True)
class Mode:
    """One way to decode, named, titled and summed up. `exact` modes give the same tokens as `uncached` in float32.

    `caches`: the mode keeps keys and values from step to step; None where that can't be known because a server decodes.
    `fills`: it fills a cache, at least within one step.
    `check` raises KvvizError for the config of a model that the mode can't decode. `account` is what is known of its
    cache's bytes and time. `work` names the step that the cost model predicts for it (`kvviz.cost.predict`); it is ""
    for a mode without a prediction. An `accelerator` mode needs a device with its own memory. A mode that
    `speculates` verifies proposed tokens; if a second model `drafts` them, it is opened with that model too. `calls` is
    how many operations its step as one call starts (`calls_of`); None for a mode without one. A mode that `splits`
    decodes a model that is spread over several devices: all of its forward is the model's own, or a server's.
    """

    name: str
    title: str
    summary: str
    open: Opener
    exact: bool = True
    caches: bool | None = True
    fills: bool = True
    check: Callable[[Config], None] = lambda config: None
    account: Account = Account()  # noqa: RUF009, frozen
    work: str = ""
    accelerator: bool = False
    speculates: bool = False
    drafts: bool = False
    calls: int | None = None
    splits: bool = False

    @property
    def elsewhere(self) -> bool:
        """Whether a server decodes, so that no model, no logits and no cache of it are seen here."""
        return self.caches is None

    @property
    def unaided(self) -> bool:
        """Whether a model is all that the mode takes, beside it neither a draft nor a server."""
        return not (self.drafts or self.elsewhere)

    @property
    def batches(self) -> bool:
        """Whether the mode decodes several sequences together."""
        return not (self.speculates or self.elsewhere)

    def calls_of(self, batch: int, device: str, dtype: str) -> int | None:
        """Return how many operations a step starts, where that does not depend on the model; None where it does.

        On a processor more sequences and other precisions go through torch's operations, one by one.
        """
        return self.calls if device != "cpu" or (batch <= LARGEST and dtype == "float32") else None

    def exactly(self, temperature: float) -> bool:
        """Whether the mode gives the same tokens as `uncached` in float32 at a sampling temperature (0: greedy).

        A draft that draws leads to other draws of the same distribution.
        """
        return self.exact and not (self.drafts and temperature)


def last_positions_only(model: "PreTrainedModel") -> dict[str, int]:
    """Return the argument that limits the head to the last position, if the model accepts it."""
    return {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}


def _reading_all_tokens(model: "PreTrainedModel", capacity: int, *, fills: bool) -> Forward:
    """Return a forward that processes the whole sequence at every step.

    transformers tests here whether several texts are packed into one row, which makes a GPU wait once a step.
    """
    options = last_positions_only(model)

    def forward(ids: "torch.Tensor", new: "torch.Tensor") -> "tuple[torch.Tensor, object]":
        out = model(input_ids=ids, use_cache=fills, **options)
        return out.logits[:, -1], None if fills else out.get("past_key_values")  # what it filled is dropped here

    return forward


_CACHES = ("past_key_values", "cache_params")  # names of the argument that takes a model's cache


def cache_argument(model: "PreTrainedModel") -> str:
    """Return the name of the argument that takes a model's cache. Raises KvvizError for a model without one."""
    taken = inspect.signature(model.forward).parameters
    if found := next((name for name in _CACHES if name in taken), None):
        return found
    raise KvvizError(f"{model.config.model_type} takes no cache that could be passed from step to step: take uncached")


def reading_new_tokens(
    model: "PreTrainedModel",
    cache: "Cache | None",
    note: "Callable[[torch.Tensor], None] | None" = None,
    watch: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Forward:
    """Return a forward that processes only the new tokens, with a cache; `note` receives their ids first.

    Without a `cache`, the model makes its own in the first step. Each forward of the model runs inside `watch()`.
    """
    options, name = last_positions_only(model), cache_argument(model)

    def forward(ids: "torch.Tensor", new: "torch.Tensor") -> "tuple[torch.Tensor, object]":
        nonlocal cache
        if note is not None:
            note(new)
        where = positions(model, ids.shape[1] - new.shape[1], new)
        with watch():
            out = model(input_ids=new, **{name: cache}, use_cache=True, **where, **options)
        cache = out[name] if cache is None else cache
        return out.logits[:, -1], cache

    return forward


def positions(model: "PreTrainedModel", seen: int, new: "torch.Tensor") -> "dict[str, torch.Tensor]":
    """Return the argument with the positions (1, t) of new tokens after `seen` ones, unless the model counts them."""
    import torch

    if facts_of(model.config.model_type).counts_positions:
        return {}
    return {"position_ids": torch.arange(seen, seen + new.shape[1], device=new.device)[None]}


def _with_their_cache(kind: str, model: "PreTrainedModel", capacity: int) -> Forward:
    from transformers import DynamicCache, QuantizedCache, StaticCache

    if kind == "cached" and not model._supports_default_dynamic_cache():
        return reading_new_tokens(model, None)
    _check_takes_caches(model)
    if kind == "static":
        return reading_new_tokens(model, StaticCache(config=model.config, max_cache_len=capacity))
    if kind == "quantized":  # fp8 is the only backend that needs no further package
        return reading_new_tokens(model, _clipping(QuantizedCache("fp8", model.config)))
    return reading_new_tokens(model, DynamicCache(config=model.config))


def _clipping(cache: "Cache") -> "Cache":
    """Clip what lies beyond the largest number of fp8, as a CPU's conversion does; on CUDA it would become NaN.

    transformers sets the scale once, by the largest number of the prompt; a later token may exceed it.
    """

    def quantize(layer: "Fp8QuantizedLayer", tensor: "torch.Tensor", scale: "torch.Tensor | None" = None) -> object:
        if scale is not None:
            most = layer.fp8_max * scale
            tensor = tensor.float().clamp(-most, most)
        return type(layer)._quantize(layer, tensor, scale)

    for layer in cache.layers:
        layer._quantize = partial(quantize, layer)
    return cache


def _with_design(design: Design, model: "PreTrainedModel", capacity: int) -> Forward:
    from kvviz.caches.hf_layer import DesignCache

    if design.accelerator:
        _check_accelerator(design.name, str(model.device))
    _check_takes_caches(model)
    cache = DesignCache(design, model.config, capacity=capacity)
    forward = reading_new_tokens(model, cache, cache.note if design.reads else None, cache.watching(model))
    return _naming(design, forward) if design.own else forward


def mode_of(design: Design) -> Mode:
    """The mode that decodes with a cache design."""
    return Mode(
        design.name,
        design.title,
        design.summary,
        partial(_with_design, design),
        exact=design.exact,
        check=partial(formula.check_design, design),
        account=design,
        accelerator=design.accelerator,
        work=design.work,
    )


def _naming(design: Design, forward: Forward) -> Forward:
    """A forward whose errors name the user's cache design that caused them, and the line."""
    from kvviz.device.memory import is_device_lost, is_out_of_memory

    file = Path(design.cls.rpartition(":")[0])

    def named(ids: "torch.Tensor", new: "torch.Tensor") -> "tuple[torch.Tensor, object]":
        try:
            return forward(ids, new)
        except Exception as error:
            if isinstance(error, KvvizError) or is_out_of_memory(error) or is_device_lost(error):
                raise
            raise KvvizError(
                f"{design.name} stopped with an error: {blamed(error, file)}; `kvviz check-cache {file.name}` says more"
            ) from error

    return named


def _check_takes_caches(model: "PreTrainedModel") -> None:
    """Raise KvvizError for a model that takes only the cache that it makes itself, as MiniMax does."""
    if not model._supports_default_dynamic_cache():
        raise KvvizError(f"{model.config.model_type} takes no cache but its own: take cached")


def _check_accelerator(mode: str, device: str) -> None:
    if device == "cpu":
        raise KvvizError(
            f"{mode} moves keys and values out of a device's memory into the host's, and here the model runs in the "
            "host's memory already: take cached, or a machine with a GPU"
        )


def _scratch(model: "PreTrainedModel", capacity: int, *, fused: bool = False) -> Forward:
    from kvviz.decoding.scratch.attention import Attention
    from kvviz.decoding.scratch.fused import FusedAttention
    from kvviz.decoding.scratch.load import shared_twin

    twin = shared_twin(model, FusedAttention if fused else Attention)  # another implementation with the same weights
    caches = twin.new_caches()

    def forward(ids: "torch.Tensor", new: "torch.Tensor") -> "tuple[torch.Tensor, object]":
        return twin.last_logits(new, caches), caches

    return forward


def _compiled(model: "PreTrainedModel", capacity: int) -> Forward:
    from kvviz.decoding.compiled.forward import CompiledForward

    return CompiledForward(model, capacity)


def _lookup(model: "PreTrainedModel", capacity: int) -> Forward:
    from kvviz.decoding.speculation import LookupDraft, SpeculativeForward

    _check_takes_caches(model)
    return SpeculativeForward(model, LookupDraft(), capacity)


def _speculative(model: "PreTrainedModel", capacity: int, draft: "PreTrainedModel | None" = None) -> Forward:
    from kvviz.decoding.speculation import ModelDraft, SpeculativeForward

    _check_takes_caches(model)
    if draft is None:
        raise KvvizError("speculative needs a second, smaller model with the same tokenizer that drafts: name one")
    return SpeculativeForward(model, ModelDraft(draft, capacity), capacity)


def _elsewhere(model: "PreTrainedModel", capacity: int) -> Forward:
    raise KvvizError("endpoint is decoded by a server, not by this model: only a comparison (`kvviz run`) takes it")


_CROPPABLE = partial(formula.check_all_full, what="speculation", instead="cached")
_PROPOSALS = "Until the next step the cache also holds proposals that were rejected, so it"
_WHOLE_RUN = "the buffer has room for all tokens of the run from the start"
_ROWS = (
    Mode(
        "uncached",
        "No cache",
        "reads the whole sequence again at every step (use_cache=False)",
        partial(_reading_all_tokens, fills=False),
        caches=False,
        fills=False,
        account=Account(slow="Each step reads the whole sequence again."),
        work="again",
        splits=True,
    ),
    Mode(
        "cached",
        "KV cache",
        "reads only the new token; keys and values of the others are kept",
        partial(_with_their_cache, "cached"),
        account=Account(
            slow="Concatenates old and new keys and values into a new tensor, as our own “Concatenated” does."
        ),
        work="joined",
        splits=True,
    ),
    Mode(
        "unpassed",
        "Cache not passed on",
        "fills a cache at every step and throws it away: the whole sequence again, and the caching on top",
        partial(_reading_all_tokens, fills=True),
        caches=False,
        work="again",
        splits=True,
    ),
    Mode(
        "scratch",
        "From scratch",
        "a transformer written to be read, on the same weights; its cache joins new keys and values to the old",
        _scratch,
        check=partial(check_scratch_design, "scratch"),
        work="joined",
    ),
    Mode(
        "fused",
        "From scratch, fused",
        "the same from scratch with attention as one call of torch (sdpa), which never keeps all the scores",
        partial(_scratch, fused=True),
        check=partial(check_scratch_design, "fused"),
        work="joined",
    ),
    Mode(
        "compiled",
        "Compiled",
        "the same from scratch as one call a step (on a GPU a graph that is replayed), its cache one buffer",
        _compiled,
        check=partial(check_scratch_design, "compiled"),
        account=Account(
            nbytes=EVERY_TOKEN,
            slack=_WHOLE_RUN,
            beside="on a GPU the captured step's own tensors and the libraries' workspaces",
        ),
        calls=1,
    ),
    Mode(
        "lookup",
        "Prompt lookup",
        "proposes what followed the last tokens when they stood in the text before, and verifies all proposals in one "
        "forward",
        _lookup,
        check=_CROPPABLE,
        account=Account(
            more=_PROPOSALS, slow="A forward pass over several tokens takes longer than one that reads a single token."
        ),
        speculates=True,
    ),
    Mode(
        "speculative",
        "Speculative",
        "a smaller model drafts the next tokens, and this one verifies all of them in one forward pass",
        _speculative,
        check=_CROPPABLE,
        account=Account(
            more=_PROPOSALS, slow="The draft's steps come on top, and a rejected proposal was computed for nothing."
        ),
        speculates=True,
        drafts=True,
    ),
    Mode(
        "static",
        "Static (transformers)",
        "transformers' StaticCache: one buffer for the longest text; attention goes over all of it, masked",
        partial(_with_their_cache, "static"),
        account=Account(
            nbytes=RING,
            slack=_WHOLE_RUN,
            slow="Attention goes over the whole buffer at each step, the empty slots masked: that is the design.",
        ),
        splits=True,
    ),
    Mode(
        "quantized",
        "8-bit floats (transformers)",
        "transformers' QuantizedCache with its fp8 backend: a byte for each number, and one scale, set by "
        "the prompt, for all: lossy",
        partial(_with_their_cache, "quantized"),
        exact=False,
        check=formula.check_all_full,
        account=Account(
            nbytes=lambda layer, n, element: n * layer.kv_heads * (layer.key_dim + layer.value_dim),
            formula="layers × sequences × KV heads × tokens × (K dim + V dim) × 1 byte",
            slack="a tensor is part of a longer one",
            slow="Each step turns all codes into numbers; a kernel could do it where it multiplies.",
        ),
        splits=True,
    ),
    *(mode_of(design) for design in DESIGNS.values()),
    Mode(
        "endpoint",
        "Endpoint",
        "a server with OpenAI's interface decodes and streams the text; its weights, logits and cache are not seen",
        _elsewhere,
        exact=False,
        caches=None,
        fills=False,
        splits=True,
    ),
)
MODES: dict[str, Mode] = {row.name: row for row in _ROWS}


def title_of(name: str, engine: Mapping[str, Any] | None = None) -> str:
    """A mode's name on every page; a mode that no longer exists keeps the name with which it was stored.

    A run of a server is called by what its `engine` (docs/json.md) tells.
    """
    return (title_of_server(engine) if engine else "") or (MODES[name].title if name in MODES else name)


def mode_named(name: str) -> Mode:
    """Return the row of a mode. Raises KvvizError, which lists the modes, for an unknown name."""
    if name not in MODES:
        if why := LEFT_OUT.get(f"{name}.py"):
            raise KvvizError(why)
        raise KvvizError(f"no mode {name!r}; the modes are {', '.join(MODES)}")
    return MODES[name]


def mode_within(name: str, budget: str | None, tokens: int, *, pyramid: bool = False) -> Mode:
    """Return the row of a mode; of a design that evicts, with a budget such as "25%" of so many tokens.

    As a `pyramid`, the budget is the mean of the layers'. Raises KvvizError for an unknown name or budget.
    """
    found, design = mode_named(name), DESIGNS.get(name)
    if design is None or not design.budget or (budget is None and not pyramid):
        return found
    count = design.budget if budget is None else tokens_of(budget, tokens)
    return mode_of(design.at(count, pyramid=tokens if pyramid else 0))


def check_modes(names: Iterable[str], config: Config | None, device: str | None = None) -> None:
    """Raise KvvizError for a mode that can't decode a config's model on this device, before anything is loaded.

    Pass None for a config or a device that is not known yet.
    """
    for name in names:
        mode = mode_named(name)
        if device == SPLIT and not mode.splits:
            able = ", ".join(row.name for row in MODES.values() if row.splits)
            raise KvvizError(f"{name} can't decode a model that is split over several devices; {able} can")
        if mode.accelerator and device is not None:
            _check_accelerator(name, device)
        if config is not None:
            family = str(config.get("model_type"))
            if mode.caches and not facts_of(family).states_in_cache:
                raise KvvizError(
                    f"{family} keeps its states in the model itself, where the next run overwrites them: {name} can't "
                    "hold them; take uncached"
                )
            mode.check(config)
