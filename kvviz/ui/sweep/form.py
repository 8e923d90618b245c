"""The sweep page's form: a preset or a grid of one's own, what it will take, and its buttons."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvviz.base.errors import KvvizError
from kvviz.base.records import DTYPES
from kvviz.base.words import lasting
from kvviz.decoding.modes import MODES
from kvviz.experiments.sweep.plan import preset_spec, within
from kvviz.experiments.sweep.spec import PRESETS, SweepSpec, cells, check_sweep
from kvviz.models.catalog.rows import models
from kvviz.server.scheduler import Scheduler
from kvviz.ui.shared.form import Field, Form
from kvviz.ui.shared.model_choice import title
from kvviz.ui.shared.plain import errors_said, plain

OWN = "A grid of your own"


def ask(scheduler: Scheduler) -> SweepSpec | None:
    """Draw the form; None, and the reason on the page, if what it says can't be done."""
    names = [*PRESETS, OWN]
    form = Form("sweep presets", "s_", preset=Field(names[0]))
    titles = {**{name: preset.title for name, preset in PRESETS.items()}, OWN: OWN}
    chosen = st.pills("Experiments", format_func=titles.__getitem__, **form.choices("preset", names))
    with errors_said():
        if chosen in PRESETS:
            st.markdown(f"**{PRESETS[chosen].title}.** {PRESETS[chosen].question}")
            spec = _preset(chosen, scheduler)
        else:
            spec = _grid()
        check_sweep(spec)
        return spec
    return None


def _preset(name: str, scheduler: Scheduler) -> SweepSpec:
    preset = preset_spec(name, scheduler.device)
    fields = {"model": Field(preset.models[0]), "repeats": Field(preset.repeats), "budget": Field()}
    form = Form(f"sweep {name}", "s_", **{f"{field}_{name}": each for field, each in fields.items()})
    left, middle, right = st.columns([3, 1, 1], vertical_alignment="bottom")
    model = left.selectbox("Model", format_func=title, **form.choice(f"model_{name}", _ids()))
    repeats = middle.number_input("Passes of each cell", **form.within(f"repeats_{name}", 1, 20))
    budget_s = _budget(right, form, f"budget_{name}")
    return preset_spec(name, scheduler.device, models=(model,), repeats=repeats, budget_s=budget_s)


def _ids() -> list[str]:
    return [row.id for row in models().values() if not row.has_encoder]


def _budget(place: DeltaGenerator, form: Form, field: str) -> float | None:
    minutes = place.number_input("At most, minutes", placeholder="no limit", **form.within(field, 0.0, 600.0))
    return minutes * 60 if minutes else None


def _grid() -> SweepSpec:
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
    )
    one, two = st.columns(2)
    chosen = one.multiselect("Models", format_func=title, **form.choices("models", ids))
    modes = two.multiselect("Modes", format_func=lambda name: MODES[name].title, **form.choices("modes", list(MODES)))
    three, four, five, six = st.columns(4)
    prompts = three.text_input("Prompt lengths, tokens", **form.value("prompts"))
    new = four.text_input("New tokens", **form.value("new"))
    batches = five.text_input("Sequences", **form.value("batches"))
    dtypes = six.multiselect("Precisions", **form.choices("dtypes", DTYPES))
    seven, eight, _ = st.columns([1, 1, 2], vertical_alignment="bottom")
    repeats = seven.number_input("Passes of each cell", **form.within("repeats", 1, 20))
    return SweepSpec(
        models=tuple(chosen),
        modes=tuple(modes),
        prompt_tokens=_numbers("prompt lengths", prompts),
        new_tokens=_numbers("new tokens", new),
        batches=_numbers("sequences", batches),
        dtypes=tuple(dtypes),
        repeats=repeats,
        budget_s=_budget(eight, form, "budget"),
    )


def _numbers(what: str, text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isascii() and part.isdecimal() and len(part) < 9 for part in parts):
        raise KvvizError(f"{what}: give whole numbers separated by commas, such as 64, 128, 256")
    return tuple(int(part) for part in parts)


def expected(spec: SweepSpec, scheduler: Scheduler) -> None:
    """Say what it will take, before it starts, and what a budget leaves out."""
    cut = within(spec, spec.budget_s, scheduler.device)
    time = lasting(cut.seconds) if cut.seconds is not None else "a time that is not known before the model is there"
    whole = f"{len(cells(spec))} cells, {len(spec.modes)} modes, {cut.repeats} passes of each: {time} by estimate."
    st.caption(f"{whole} Within the limit: {plain(cut.words)}." if spec.budget_s else whole)
