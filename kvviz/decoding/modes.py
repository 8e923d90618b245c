"""How a decode is done: one row per mode, each opening a forward for the loop.

A forward takes `ids` (B, T), the whole sequence so far, and `new` (B, t), the tokens that it has not been
given yet; it returns the logits of the last position (B, vocabulary) and the cache that the run keeps.
Every mode computes the head for the last position only, as any decoder would.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.caches.designs import DESIGNS, Design
from kvviz.caches.formula import check_all_full
from kvviz.caches.formula import check_design as check_takes
from kvviz.decoding.scratch.design import check_design

Forward = Callable[[Any, Any], tuple[Any, Any]]
Config = Mapping[str, Any]


def _any_model(config: Config) -> None:
    """The check of a mode that decodes whatever transformers can load."""


@dataclass(frozen=True)
class Mode:
    """One way to decode. `exact` modes give the same tokens as `uncached` in float32.

    A mode that `caches` keeps keys and values from step to step; one that `fills` a cache has it at least within one.
    `check` raises KvvizError for the config of a model that the mode can't decode. `work`: what the cost model takes a
    step for (`kvviz.cost.predict`); "" where it has no prediction. A `sized` mode's `open` is given the tokens of each
    sequence to make room for as well. An `accelerator` mode is for a device apart from the host.
    """

    name: str
    title: str
    summary: str
    exact: bool
    caches: bool
    fills: bool
    open: Callable[..., Forward]
    check: Callable[[Config], None] = _any_model
    work: str = ""
    sized: bool = False
    accelerator: bool = False

    def opened(self, model: Any, room: int) -> Forward:
        """The mode's forward on a model, for sequences of up to `room` tokens."""
        return self.open(model, room) if self.sized else self.open(model)


def _only_last(model: Any) -> dict[str, int]:
    """The argument that spares the head all positions but the last, where the model has it."""
    return {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}


def _uncached(model: Any) -> Forward:
    only_last = _only_last(model)

    def forward(ids: Any, new: Any) -> tuple[Any, Any]:
        out = model(input_ids=ids, use_cache=False, **only_last)
        return out.logits[:, -1], out.get("past_key_values")

    return forward


def _unpassed(model: Any) -> Forward:
    only_last = _only_last(model)

    def forward(ids: Any, new: Any) -> tuple[Any, Any]:
        logits = model(input_ids=ids, use_cache=True, **only_last).logits[:, -1]
        return logits, None  # the cache that the model filled is dropped here, with the rest of its output

    return forward


def _cached(model: Any) -> Forward:
    from transformers import DynamicCache

    only_last = _only_last(model)
    cache = DynamicCache(config=model.config)

    def forward(ids: Any, new: Any) -> tuple[Any, Any]:
        out = model(input_ids=new, past_key_values=cache, use_cache=True, **only_last)
        return out.logits[:, -1], cache

    return forward


def _static(model: Any, room: int) -> Forward:
    from transformers import StaticCache

    return _passing(model, StaticCache(config=model.config, max_cache_len=room))


def _quantized(model: Any) -> Forward:
    from transformers import QuantizedCache

    return _passing(model, QuantizedCache("fp8", model.config))  # the one backend that needs no further package


def _passing(model: Any, cache: Any, note: Callable[[Any], None] = lambda new: None) -> Forward:
    """Read the new tokens alone, with a cache; `note` is told of them first."""
    only_last = _only_last(model)

    def forward(ids: Any, new: Any) -> tuple[Any, Any]:
        note(new)
        out = model(input_ids=new, past_key_values=cache, use_cache=True, **only_last)
        return out.logits[:, -1], cache

    return forward


def _designed(design: Design, model: Any, room: int) -> Forward:
    from kvviz.caches.hf_layer import DesignCache

    if design.accelerator:
        _check_apart(design.name, str(model.device))
    cache = DesignCache(design, model.config, room=room)
    return _passing(model, cache, cache.note) if design.reads else _passing(model, cache)


def _check_apart(mode: str, device: str) -> None:
    if device == "cpu":
        raise KvvizError(
            f"{mode} moves keys and values out of a device's memory into the host's, and here the model runs in the "
            "host's memory already: take cached, or a machine with a GPU"
        )


def _scratch(model: Any) -> Forward:
    from kvviz.decoding.scratch.load import from_transformers

    twin = from_transformers(model)  # another way to compute, on the same weights
    caches = twin.new_caches()

    def forward(ids: Any, new: Any) -> tuple[Any, Any]:
        return twin.head(twin.read(new, caches)[:, -1]), caches

    return forward


def _compiled(model: Any, room: int) -> Forward:
    from kvviz.decoding.compiled.forward import Forward as Fast

    return Fast(model, room)


_ROWS = (
    Mode(
        name="uncached",
        title="No cache",
        summary="reads the whole sequence again at every step (use_cache=False)",
        exact=True,
        caches=False,
        fills=False,
        open=_uncached,
        work="again",
    ),
    Mode(
        name="cached",
        title="KV cache",
        summary="reads only the new token; keys and values of the others are kept",
        exact=True,
        caches=True,
        fills=True,
        open=_cached,
        work="joined",
    ),
    Mode(
        name="unpassed",
        title="Cache not passed on",
        summary="fills a cache at every step and throws it away: the whole sequence again, and the caching on top",
        exact=True,
        caches=False,
        fills=True,
        open=_unpassed,
        work="again",
    ),
    Mode(
        name="scratch",
        title="From scratch",
        summary="a transformer written to be read, on the same weights; its cache joins new keys and values to the old",
        exact=True,
        caches=True,
        fills=True,
        open=_scratch,
        check=check_design,
        work="joined",
    ),
    Mode(
        name="compiled",
        title="Compiled",
        summary="the same from scratch as one call a step (on a GPU a graph that is replayed), its cache one buffer",
        exact=True,
        caches=True,
        fills=True,
        open=_compiled,
        check=check_design,
        sized=True,
    ),
    Mode(
        name="static",
        title="Static (transformers)",
        summary="transformers' StaticCache: one buffer for the longest text; attention goes over all of it, masked",
        exact=True,
        caches=True,
        fills=True,
        open=_static,
        sized=True,
    ),
    Mode(
        name="quantized",
        title="8-bit floats (transformers)",
        summary="transformers' QuantizedCache with its fp8 backend: a byte for each number, one scale for all: lossy",
        exact=False,
        caches=True,
        fills=True,
        open=_quantized,
        check=partial(check_all_full, "quantized"),
    ),
    *(
        Mode(
            name=design.name,
            title=design.title,
            summary=design.summary,
            exact=design.exact,
            caches=True,
            fills=True,
            open=partial(_designed, design),
            check=partial(check_takes, design.name),
            sized=True,
            accelerator=design.accelerator,
            work="joined" if design.name == "concat" else "",
        )
        for design in DESIGNS.values()
    ),
)
MODES: dict[str, Mode] = {row.name: row for row in _ROWS}


def mode_named(name: str) -> Mode:
    """The row of a mode. Raises KvvizError listing the names where there is none."""
    if name not in MODES:
        raise KvvizError(f"no mode {name!r}; the modes are {', '.join(MODES)}")
    return MODES[name]


def check_modes(names: Iterable[str], config: Config | None, device: str | None = None) -> None:
    """Refuse, before anything is loaded, a mode that can't decode the model of a config, or not on this device.

    None: it is not known yet.
    """
    for name in names:
        mode = mode_named(name)
        if mode.accelerator and device is not None:
            _check_apart(name, device)
        if config is not None:
            mode.check(config)
