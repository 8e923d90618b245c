"""The roofline page's form, and the words around the measurement that it asks for."""

import streamlit as st

from kvviz.base.words import lasting, millis
from kvviz.cost.roofline import countable
from kvviz.experiments.eta import seconds_of
from kvviz.experiments.kind import Record
from kvviz.experiments.roofline.spec import REACH, RoofSpec, places
from kvviz.server.scheduler import Scheduler
from kvviz.ui.shared import model_choice as choices
from kvviz.ui.shared.form import Field, Form, whole
from kvviz.ui.shared.plain import errors_said

TOKENS = (64, 128, 256, 512, 1024, 2048, 4096)
BATCHES = (1, 2, 4, 8, 16, 32, 64)


def ask(scheduler: Scheduler) -> RoofSpec | None:
    """Draw the form; None, and the reason on the page, if what it says can't be measured."""
    form = Form("roofline", "r_", **choices.measured_fields(), tokens=Field(512, whole), batch=Field(16, whole))
    with st.container(border=True):
        one, two, three, four, five = st.columns([4, 3, 2, 2, 2], gap="small")
        model, weights, dtype = choices.choose_measured(one, two, five, form)
        most = min(scheduler.limits.prompt_tokens, choices.positions(model) - REACH)
        tokens = choices.choose_size(three, "Longest context", form, "tokens", TOKENS, most=most)
        batch = choices.choose_size(four, "Largest batch", form, "batch", BATCHES, most=scheduler.limits.batch)
    form.write()
    with errors_said():
        spec = RoofSpec(model, weights, tokens, batch, dtype)
        source = choices.accepted(scheduler, spec.work())
        if source.config is not None:
            countable(source.config, source.title)
        return spec
    return None


def expected(scheduler: Scheduler, spec: RoofSpec) -> str:
    """What the measurement will do and how long it takes, in words."""
    seconds = seconds_of(spec, scheduler.device)
    if seconds is None:
        return "How long it takes is known once the model is there."
    return f"{len(places(spec))} prefills and decode steps, each many times: about {lasting(seconds)}."


def progress(last: Record) -> tuple[float, str]:
    """How far the measurement is: a share, and what was measured last, in words."""
    kind = last.get("t")
    if kind == "point":
        where = f"{last['phase']} at {last['tokens']:,} tokens" + (f" × {last['batch']}" if last["batch"] > 1 else "")
        return 0.9 * last["done"] / last["of"], f"{last['done']} of {last['of']}: {where}, {millis(last['s'])}"
    if kind == "profile":
        return 0.95, "Now where the time goes, with the profiler …"
    return 0.0, "Measuring the device's ceilings …" if kind == "look" else "Loading the model …"
