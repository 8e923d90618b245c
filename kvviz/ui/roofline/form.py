"""The roofline page's form, and the words around the measurement that it asks for."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvviz.base.words import lasting, millis
from kvviz.cost.roofline import countable
from kvviz.experiments.eta import seconds_of
from kvviz.experiments.kind import Record
from kvviz.experiments.roofline.spec import REACH, RoofSpec, places
from kvviz.models.sources import first_model
from kvviz.server.scheduler import Scheduler
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared import model_choice as choices
from kvviz.ui.shared.experiment import run_bar
from kvviz.ui.shared.form import Field, Form, whole
from kvviz.ui.shared.plain import errors_said

TOKENS = (64, 128, 256, 512, 1024, 2048, 4096)
BATCHES = (1, 2, 4, 8, 16, 32, 64)

FIRST = "gpt2"  # large enough for its decode step to wait for memory; it has random weights where its own are not


def first_roof() -> RoofSpec:
    """What the form asks for at first."""
    return RoofSpec(FIRST)


def kept(model: str) -> str:
    """The name of the recording to show before a measurement of this model: its own one, if there is one."""
    return f"{RoofSpec.kind}-{model}" if model == first_model() else RoofSpec.kind


def ask(scheduler: Scheduler) -> tuple[RoofSpec | None, DeltaGenerator]:
    """Draw the form; return the spec, None for a choice that can't be measured, and the place of the buttons."""
    fields = {**choices.measured_fields(), "model": choices.model_field(choices.decodable(), FIRST)}
    form = Form("roofline", "r_", **fields, tokens=Field(512, whole), batch=Field(16, whole))
    bar = run_bar("roofline")
    with bar:
        model = choices.choose_model(st.container(width=260, key="r_model_box"), form, choices.decodable())
        with st.popover("More", icon=":material/tune:"):
            most = min(scheduler.limits.prompt_tokens, choices.positions(model) - REACH)
            tokens = choices.choose_size(st.container(), "Longest context", form, "tokens", TOKENS, most=most)
            most = scheduler.limits.batch
            batch = choices.choose_size(st.container(), "Largest batch", form, "batch", BATCHES, most=most)
            weights, dtype = choices.choose_precision(form)
    form.write()
    with errors_said():
        spec = RoofSpec(model, weights, tokens, batch, dtype)
        source = choices.accepted(scheduler, spec.work())
        if source.config is not None:
            countable(source.config, source.title)
        return spec, bar
    return None, bar


def expected(scheduler: Scheduler, spec: RoofSpec) -> str:
    """What the measurement will do and how long it takes, in words."""
    seconds = seconds_of(spec, scheduler.device)
    lasts = "a while" if seconds is None else f"about {lasting(seconds)}"
    return TEXTS["roofline"]["takes"].format(count=len(places(spec)), lasting=lasts)


def progress(last: Record) -> tuple[float, str]:
    """How far the measurement is: a share, and what was measured last, in words."""
    kind = last.get("t")
    if kind == "point":
        where = f"{last['phase']} at {last['tokens']:,} tokens" + (f" × {last['batch']}" if last["batch"] > 1 else "")
        return 0.9 * last["done"] / last["of"], f"{last['done']} of {last['of']}: {where}, {millis(last['s'])}"
    if kind == "profile":
        return 0.95, "Now where the time goes, with the profiler …"
    return 0.0, "Measuring the device's ceilings …" if kind == "look" else "Loading the model …"
