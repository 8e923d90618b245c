"""What the sections of the serving page have in common: the address, the model, the wait in words."""

import json
from typing import Any

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.base.words import lasting
from kvviz.decoding.modes import check_modes
from kvviz.experiments.eta import seconds_of
from kvviz.experiments.serving.spec import MOST_ASKS, RANGES, SharingSpec, TalkSpec
from kvviz.models.catalog.rows import models
from kvviz.server.scheduler import Scheduler
from kvviz.ui.live.form import default_model
from kvviz.ui.shared.links import Read, one_of, take_over, whole, write
from kvviz.ui.shared.model_choice import accepted, weights_in_words

SMALL = 200_000_000  # parameters: what decodes hundreds of prompts in a minute on a laptop
RATES = (0.25, 0.5, 1.0, 2.0, 4.0)
SLOTS = (512, 1024, 2048, 4096)
LONGEST = (64, 128, 256, 512)
_STYLE = """<style>.katex-display { overflow-x: auto; overflow-y: hidden; padding-top: 0.4rem; }
@media (max-width: 480px) { .katex-display { font-size: 0.8em; } }</style>"""
_START = {"requests": 80, "rate": 1.0, "slots": 2048, "longest": 256, "seed": 0, "asks": 4, "drop": 16}


def begin() -> None:
    """Take the choices over from a link; what is none becomes the usual."""
    st.html(_STYLE)
    take_over("v", {**{name: _reader(name) for name in _START}, "model": one_of(*shareable())})
    for name, value in {**_START, "model": usual_model()}.items():
        st.session_state.setdefault(f"v_{name}", value)


def end() -> None:
    """Put the choices into the address."""
    write("v", {name: st.session_state[f"v_{name}"] for name in (*_START, "model")})


def _reader(name: str) -> Read:
    choices = {"rate": RATES, "slots": SLOTS, "longest": LONGEST}
    if name in choices:
        return lambda text: _among(choices[name], text)
    least, most = {**RANGES, "asks": (2, MOST_ASKS), "drop": (1, 64)}[name]
    return lambda text: min(most, max(least, whole(text)))


def _among(choices: tuple[Any, ...], text: str) -> Any:
    found = next((choice for choice in choices if str(choice) == text), None)
    if found is None:
        raise ValueError(text)
    return found


@st.cache_data(show_spinner=False)
def shareable() -> dict[str, str]:
    """Catalog models whose layers can share blocks and that are small enough here, with titles."""
    found = {}
    for row in models().values():
        try:
            check_modes(["prefix"], row.config)
        except KvvizError:
            continue
        if row.params <= SMALL and not row.has_encoder:
            found[row.id] = row.title
    return found


def usual_model() -> str:
    """The trained one where there is one."""
    return default_model() if default_model() in shareable() else next(iter(shareable()))


def checked(scheduler: Scheduler, spec: SharingSpec | TalkSpec) -> str:
    """How long it will take, in words. Raises KvvizError for what the worker would refuse."""
    accepted(scheduler, spec.work())
    seconds = seconds_of(spec, scheduler.device)
    said = f"{spec.prefills} prompts are served, each with an answer of {spec.new_tokens} tokens"
    return f"{said}; by this device's rates about {lasting(seconds)} of work." if seconds is not None else f"{said}."


def progress(records: list[str]) -> tuple[float, str]:
    """How far a look at many requests is."""
    last = json.loads(records[-1]) if records else {}
    if last.get("t") == "way":
        return last["done"] / last["of"], f"{last['done']} of {last['of']}: {last['title']}"
    return 0.0, "Serving …" if last.get("t") == "look" else "Loading …"


def where(found: dict[str, Any]) -> None:
    """Where the figures come from, under them."""
    whose = f"{found['title']}, {weights_in_words(found['weights'])}, {found['dtype']}, on {found['device']}"
    rounds = f"medians and quartiles of {found['spec']['repeats']} rounds, cold and warm in turn"
    st.caption(f"{whose}; {rounds}. {found['note']}")
