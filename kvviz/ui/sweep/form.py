"""The sweep page's form: a preset or the user's grid, the expected time, and the buttons."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvviz.base.errors import KvvizError
from kvviz.base.records import DTYPES
from kvviz.base.words import lasting
from kvviz.decoding.modes import MODES
from kvviz.experiments.sweep.plan import PATIENCE, preset_spec, stands_in, within
from kvviz.experiments.sweep.spec import PRESETS, Preset, SweepSpec, cells, check_sweep
from kvviz.models.catalog.rows import models
from kvviz.server.scheduler import Scheduler
from kvviz.ui.shared.devices import AUTO, choose_device
from kvviz.ui.shared.experiment import run_bar
from kvviz.ui.shared.form import Field, Form
from kvviz.ui.shared.model_choice import title
from kvviz.ui.shared.plain import errors_said, plain

OWN = "A grid of your own"


def ask(scheduler: Scheduler) -> tuple[SweepSpec | None, DeltaGenerator]:
    """Draw the form; returns the row that it stands in, and None, with the reason on the page, if it can't be done."""
    names = [*PRESETS, OWN]
    form = Form("sweep presets", "s_", preset=Field(names[0]))
    titles = {**{name: preset.title for name, preset in PRESETS.items()}, OWN: OWN}
    bar = run_bar("sweep")
    with bar:
        chosen = st.selectbox("Experiment", format_func=titles.__getitem__, width=380, **form.choice("preset", names))
        with errors_said():
            spec = _preset(chosen, scheduler) if chosen in PRESETS else _grid(scheduler)
            check_sweep(spec)
            return spec, bar
    return None, bar


def chosen_preset() -> Preset | None:
    """The named experiment that the form shows; None for the user's own grid."""
    return PRESETS.get(st.session_state.s_preset)


def _preset(name: str, scheduler: Scheduler) -> SweepSpec:
    preset = preset_spec(name, scheduler.device)
    usual = {"model": preset.models[0], "repeats": preset.repeats, "budget": None, "device": AUTO}
    form = Form(f"sweep {name}", "s_", **{f"{field}_{name}": Field(value) for field, value in usual.items()})
    model = st.selectbox("Model", format_func=title, width=270, **form.choice(f"model_{name}", _ids()))
    with st.popover("More", icon=":material/tune:"):
        repeats = st.number_input("Passes of each point", width=150, **form.within(f"repeats_{name}", 1, 20))
        budget_s = _budget(form, f"budget_{name}")
        device = choose_device(scheduler, form, f"device_{name}")
    given = {"models": (model,), "repeats": repeats, "budget_s": budget_s, "device": device}
    return preset_spec(name, scheduler.device_for(device), **given)


def _ids() -> list[str]:
    return [row.id for row in models().values() if not row.has_encoder]


def _budget(form: Form, field: str) -> float | None:
    usual = "no limit" if field == "budget" else f"{PATIENCE // 60}"
    minutes = st.number_input("At most, minutes", placeholder=usual, width=150, **form.within(field, 0.0, 600.0))
    return minutes * 60 if minutes else None


def _grid(scheduler: Scheduler) -> SweepSpec:
    ids = _ids()
    form = Form(
        "sweep grid",
        "s_",
        models=Field(ids[:1]),
        modes=Field(["uncached", "cached"]),
        prompts=Field("64, 128, 256"),
        new=Field("32"),
        batches=Field("1"),
        dtypes=Field(["float32"]),
        repeats=Field(3),
        budget=Field(),
        prompt=Field(""),
        device=Field(AUTO),
    )
    chosen = st.multiselect("Models", format_func=title, width=400, **form.choices("models", ids))
    modes = st.multiselect(
        "Modes",
        format_func=lambda name: MODES[name].title,
        width=400,
        **form.choices("modes", [name for name, mode in MODES.items() if mode.unaided]),
    )
    prompts = st.text_input("Prompt lengths, tokens", width=180, **form.value("prompts"))
    new = st.text_input("New tokens", width=150, **form.value("new"))
    batches = st.text_input("Sequences", width=150, **form.value("batches"))
    dtypes = st.multiselect("Precisions", width=250, **form.choices("dtypes", DTYPES))
    repeats = st.number_input("Passes of each point", width=150, **form.within("repeats", 1, 20))
    return SweepSpec(
        models=tuple(chosen),
        modes=tuple(modes),
        prompt_tokens=_numbers("prompt lengths", prompts),
        new_tokens=_numbers("new tokens", new),
        batches=_numbers("sequences", batches),
        dtypes=tuple(dtypes),
        repeats=repeats,
        budget_s=_budget(form, "budget"),
        prompt=st.text_input("Prompt", placeholder="random tokens", width=250, **form.value("prompt")) or None,
        device=choose_device(scheduler, form),
    )


def _numbers(what: str, text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isascii() and part.isdecimal() and len(part) < 9 for part in parts):
        raise KvvizError(f"{what}: give whole numbers separated by commas, such as 64, 128, 256")
    return tuple(int(part) for part in parts)


def expected(spec: SweepSpec, scheduler: Scheduler) -> str:
    """Say what it will take, before it starts, and what a budget leaves out, as Markdown."""
    device = scheduler.device_for(spec.device)
    cut = within(spec, spec.budget_s, device)
    time = (
        f"{lasting(cut.seconds)} on this machine, estimated"
        if cut.seconds is not None
        else "how long is not known before it starts"
    )
    passes = "1 pass" if cut.repeats == 1 else f"{cut.repeats} passes"
    points = len(cells(spec))
    said = [f"{points} point{'s' * (points > 1)}, {len(spec.modes)} modes, {passes} of each: {time}."]
    if spec.budget_s:
        said.append(f"Within the limit of {lasting(spec.budget_s)}: {plain(cut.words)}.")
    if spec.prompt is not None:
        said.append(f"Each prompt is “{plain(spec.prompt)}” in the model's tokens, repeated or cut to its length.")
    return " ".join([*said, stands_in(spec, device)]).rstrip()
