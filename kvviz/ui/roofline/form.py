"""The roofline page's form, and the wait for what it asks for."""

import json
from typing import Any

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.base.records import DTYPES
from kvviz.base.words import lasting, millis
from kvviz.cost.roofline import countable
from kvviz.experiments.eta import seconds_of
from kvviz.experiments.roofline.spec import REACH, RoofSpec, places
from kvviz.models.sources import find_source
from kvviz.server.scheduler import Scheduler
from kvviz.ui.live.form import default_model
from kvviz.ui.shared import filled
from kvviz.ui.shared.links import one_of, take_over, whole, write
from kvviz.ui.shared.model_choice import WEIGHTS, accepted, choose_size, choose_weights, decodable, title
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.waiting import measured

TOKENS = (64, 128, 256, 512, 1024, 2048, 4096)
BATCHES = (1, 2, 4, 8, 16, 32, 64)


def ask(scheduler: Scheduler) -> RoofSpec | None:
    """What is to be measured; None, and a sentence on the page, where that can't be done."""
    ids = decodable()
    fields = {"model": one_of(*ids), "weights": one_of(*WEIGHTS), "dtype": one_of(*DTYPES)}
    take_over("r", {**fields, "tokens": whole, "batch": whole})
    with st.container(border=True):
        one, two, three, four, five = st.columns([4, 3, 2, 2, 2], gap="small")
        st.session_state.setdefault("r_model", default_model())
        model = one.selectbox("Model", ids, filled.index("r_model", ids), format_func=title, key="r_model")
        weights = choose_weights(two, "r_weights")
        tokens = choose_size(
            three, "Longest context", "r_tokens", TOKENS, most=_most_tokens(scheduler, model), usual=512
        )
        batch = choose_size(four, "Largest batch", "r_batch", BATCHES, most=scheduler.limits.batch, usual=16)
        dtype = five.selectbox("Precision", DTYPES, filled.index("r_dtype", DTYPES), key="r_dtype")
    write("r", {"model": model, "weights": weights, "tokens": tokens, "batch": batch, "dtype": dtype})
    try:
        spec = RoofSpec(model, weights, tokens, batch, dtype)
        source = accepted(scheduler, spec.work())
        if source.config is not None:
            countable(source.config, source.title)
        return spec
    except KvvizError as error:
        st.warning(plain(error))
        return None


def _most_tokens(scheduler: Scheduler, model: str) -> int:
    """Tokens that the model has positions for, and the server allows."""
    try:
        spec = find_source(model).spec
    except KvvizError:
        spec = None
    context = spec.context if spec is not None and spec.context else scheduler.limits.prompt_tokens
    return min(scheduler.limits.prompt_tokens, context - REACH)


def look(scheduler: Scheduler, spec: RoofSpec) -> dict[str, Any] | None:
    """The buttons, and the document once there is one; whoever asks for the same shares it."""
    return measured(scheduler, spec, key="r", words=_foreseen(scheduler, spec), progress=progress)


def _foreseen(scheduler: Scheduler, spec: RoofSpec) -> str:
    seconds = seconds_of(spec, scheduler.device)
    if seconds is None:
        return "How long it takes is known once the model is there."
    return f"{len(places(spec))} prefills and decode steps, each many times: about {lasting(seconds)}."


def progress(records: list[str]) -> tuple[float, str]:
    """How far a look at the roofline is: a share, and what was measured last, in words."""
    last = json.loads(records[-1]) if records else {}
    kind = last.get("t")
    if kind == "point":
        where = f"{last['phase']} at {last['tokens']:,} tokens" + (f" × {last['batch']}" if last["batch"] > 1 else "")
        return 0.9 * last["done"] / last["of"], f"{last['done']} of {last['of']}: {where}, {millis(last['s'])}"
    if kind == "profile":
        return 0.95, "Now where the time goes, with the profiler …"
    return 0.0, "Measuring the device's ceilings …" if kind == "look" else "Loading the model …"
