"""The sweep page's widgets: a preset or a grid of one's own, what it will take, and its results as they come."""

import json
from collections.abc import Sequence
from typing import Any

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.base.records import DTYPES
from kvviz.base.words import human, lasting
from kvviz.charts.sweep import AXES, MEASURES, against, heat, varying
from kvviz.decoding.modes import MODES
from kvviz.experiments.eta import in_line
from kvviz.experiments.sweep.plan import preset_spec, within
from kvviz.experiments.sweep.rows import rows
from kvviz.experiments.sweep.spec import PRESETS, SweepSpec, cells, check_sweep
from kvviz.experiments.sweep.trends import caveats, contrasts, findings
from kvviz.models.catalog.rows import Preset, models
from kvviz.server.job import Job
from kvviz.server.persister import library
from kvviz.server.scheduler import Scheduler
from kvviz.server.script_slots import turn
from kvviz.ui.compare.compare import picture
from kvviz.ui.shared import links
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.plots import plot
from kvviz.ui.shared.session import owner

OWN = "A grid of your own"


def ask(scheduler: Scheduler) -> SweepSpec | None:
    """The form; None, and a sentence on the page, where it asks for what can't be done."""
    names = [*PRESETS, OWN]
    chosen = st.pills(
        "Experiments",
        names,
        format_func=lambda name: OWN if name == OWN else PRESETS[name].title,
        default=names[0],
        key="s_preset",
    )
    try:
        if chosen in PRESETS:
            st.markdown(f"**{PRESETS[chosen].title}.** {PRESETS[chosen].question}")
            spec = _preset(chosen, scheduler)
        else:
            spec = _grid()
        check_sweep(spec)
        return spec
    except KvvizError as error:
        st.warning(plain(error))
        return None


def _preset(name: str, scheduler: Scheduler) -> SweepSpec:
    usual = preset_spec(name, scheduler.device)
    left, middle, right = st.columns([3, 1, 1], vertical_alignment="bottom")
    ids = [row.id for row in models().values() if not row.has_encoder]
    model = left.selectbox("Model", ids, index=ids.index(usual.models[0]), key=f"s_model_{name}", format_func=_title)
    repeats = middle.number_input("Passes of each cell", 1, 20, usual.repeats, key=f"s_repeats_{name}")
    budget = right.number_input(
        "At most, minutes", 0.0, 600.0, value=None, key=f"s_budget_{name}", placeholder="no limit"
    )
    return preset_spec(
        name, scheduler.device, models=(model,), repeats=int(repeats), budget_s=budget * 60 if budget else None
    )


def _title(model: str) -> str:
    return models()[model].title


def _grid() -> SweepSpec:
    ids = [row.id for row in models().values() if not row.has_encoder]
    one, two = st.columns(2)
    chosen = one.multiselect("Models", ids, default=ids[:1], key="s_models", format_func=_title)
    modes = two.multiselect(
        "Modes", list(MODES), default=["uncached", "cached"], key="s_modes", format_func=lambda name: MODES[name].title
    )
    three, four, five, six = st.columns(4)
    prompts = three.text_input("Prompt lengths, tokens", "64, 128, 256", key="s_prompts")
    new = four.text_input("New tokens", "32", key="s_new")
    batches = five.text_input("Sequences", "1", key="s_batches")
    dtypes = six.multiselect("Precisions", DTYPES, default=["float32"], key="s_dtypes")
    seven, eight, _ = st.columns([1, 1, 2], vertical_alignment="bottom")
    repeats = seven.number_input("Passes of each cell", 1, 20, 3, key="s_repeats")
    budget = eight.number_input("At most, minutes", 0.0, 600.0, value=None, key="s_budget", placeholder="no limit")
    return SweepSpec(
        models=tuple(chosen),
        modes=tuple(modes),
        prompt_tokens=_numbers("prompt lengths", prompts),
        new_tokens=_numbers("new tokens", new),
        batches=_numbers("sequences", batches),
        dtypes=tuple(dtypes),
        repeats=int(repeats),
        budget_s=budget * 60 if budget else None,
    )


def _numbers(what: str, text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isascii() and part.isdecimal() and len(part) < 9 for part in parts):
        raise KvvizError(f"{what}: give whole numbers separated by commas, such as 64, 128, 256")
    return tuple(int(part) for part in parts)


def foreseen(spec: SweepSpec, scheduler: Scheduler) -> None:
    """What it will take, before it starts; and what a budget leaves out."""
    cut = within(spec, spec.budget_s, scheduler.device)
    time = lasting(cut.seconds) if cut.seconds is not None else "a time that is not known before the model is there"
    whole = f"{len(cells(spec))} cells, {len(spec.modes)} modes, {cut.repeats} passes of each: {time} by estimate."
    st.caption(f"{whole} Within the limit: {plain(cut.words)}." if spec.budget_s else whole)


def start(spec: SweepSpec | None, scheduler: Scheduler, watched: str | None) -> None:
    """Start, and stop one's own."""
    may_stop = scheduler.may_stop(watched or "", owner())
    run, stop, _ = st.columns([1, 1, 6])
    if run.button("Run", type="primary", disabled=spec is None, width="stretch", key="s_run") and spec is not None:
        _submit(scheduler, spec, ())
    if stop.button("Stop", disabled=not may_stop, width="stretch", key="s_stop") and may_stop:
        scheduler.stop(watched or "", owner())
        st.rerun()


def _submit(scheduler: Scheduler, spec: SweepSpec, earlier: Sequence[dict[str, Any]]) -> None:
    try:
        links.write("sweep", {"sweep": scheduler.submit(spec, owner(), earlier=earlier)})
    except KvvizError as error:
        st.error(plain(error))
        return
    st.rerun()


def shown(scheduler: Scheduler, watched: str | None) -> None:
    """The sweep that is watched, its results filling in; redrawn once a second while it runs."""
    if not watched:
        _kept()
        return
    work = scheduler.get(watched)
    if work is None or work.kind != "sweep":
        st.warning("There is no such sweep here; it may have been deleted.")
        return
    st.fragment(lambda: _in_turn(scheduler, watched), run_every=1.0 if work.active else None)()


def _in_turn(scheduler: Scheduler, sweep_id: str) -> None:
    with turn():
        _results(scheduler, sweep_id)


def _results(scheduler: Scheduler, sweep_id: str) -> None:
    work = scheduler.get(sweep_id)
    if work is None:
        return
    spec = SweepSpec.from_dict(work.description())
    records = [*work.earlier, *(json.loads(text) for text in list(work.records))]
    _progress(scheduler, work, spec, records)
    found = rows(records, spec)
    if found:
        _table(spec, found)
        _words(spec, found)
        _charts(found)
    for record in records:
        if record["t"] == "cell_failed":
            st.warning(plain(record["message"]))
    if not work.active and st.session_state.get("s_ended") != sweep_id:
        st.session_state.s_ended = sweep_id
        st.rerun()  # the whole page: the buttons and the timer change


def _progress(scheduler: Scheduler, work: Job, spec: SweepSpec, records: Sequence[dict[str, Any]]) -> None:
    last = next((record for record in reversed(records) if record["t"] == "progress"), None)
    if work.state == "queued":
        st.progress(0.0, in_line(scheduler.ahead(work.id), scheduler.expected_wait(work.id), scheduler.held_by))
    elif work.active:
        share = last["done"] / last["of"] if last and last["of"] else 0.0
        left = f", {lasting(last['left_s'])} left" if last and last.get("left_s") is not None else ""
        st.progress(min(1.0, share), f"{last['done'] if last else 0} of {last['of'] if last else '…'} passes{left}")
    elif work.state == "done":
        st.progress(1.0, "Done")
    else:
        st.warning(plain(work.message or f"This sweep was {work.state}; what it measured is below."))
        if st.button("Go on where it ended", key="s_resume"):
            _submit(scheduler, spec, [record for record in records if record["t"] in ("cell_proof", "cell_pass")])


def _table(spec: SweepSpec, found: Sequence[dict[str, Any]]) -> None:
    preset = PRESETS.get(spec.preset)
    left, right = st.columns(2, gap="large") if preset and preset.published else (st.container(), None)
    with left:
        st.markdown("**Measured here**")
        st.dataframe([_row(row) for row in found], hide_index=True, width="stretch", key="s_rows")
    if right is not None and preset is not None:
        with right:
            _published(preset)


def _words(spec: SweepSpec, found: Sequence[dict[str, Any]]) -> None:
    """What is flat and what climbs, here and as published: read off the rows."""
    preset = PRESETS.get(spec.preset)
    sentences = [*findings(found), *(contrasts(found, preset.published) if preset and preset.published else ())]
    st.markdown("\n".join(f"- {plain(sentence)}" for sentence in sentences))
    for sentence in caveats(found):
        st.caption(plain(sentence))


def _row(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "model": row["model"],
        "prompt": row["prompt_tokens"],
        "new": row["new_tokens"],
        "batch": row["batch"],
        "mode": row["mode"],
        "TTFT, ms": _ms(row["ttft_s"]),
        "ITL, ms": _ms(row["itl_s"]),
        "total, s": round(row["total_s"], 3),
        "tokens/s": round(row["tokens_per_s"], 1),
        "speed-up": round(row["speedup"], 2) if row["speedup"] else None,
        "cache": human(row["cache_bytes"]) if row["cache_bytes"] is not None else None,
        "peak": human(row["peak_bytes"]) if row["peak_bytes"] is not None else None,
        "passes": row["repeats"],
        "same tokens": {True: "yes", False: "no"}.get(row["identical"], ""),
    }


def _ms(seconds: float | None) -> float | None:
    return round(seconds * 1000, 3) if seconds is not None else None


def _published(preset: Preset) -> None:
    """The table as it was printed elsewhere, on other hardware: it is the shape that should come back."""
    st.markdown(f"**As published** ([source]({preset.source})): {preset.published.note}")
    st.dataframe([_printed(row) for row in preset.published.rows], hide_index=True, width="stretch", key="s_published")


_PRINTED = {
    "prompt_tokens": ("prompt", 1),
    "new_tokens": ("new", 1),
    "batch": ("batch", 1),
    "mode": ("mode", None),
    "ttft_s": ("TTFT, ms", 1e3),
    "itl_s": ("ITL, ms", 1e3),
    "total_s": ("total, s", 1),
    "tokens_per_s": ("tokens/s", 1),
    "speedup": ("speed-up", 1),
    "operations": ("operations", 1),
    "peak_with_weights_bytes": ("peak with weights, MiB", 2**-20),
}


def _printed(row: dict[str, Any]) -> dict[str, Any]:
    known = {name: _PRINTED[name] for name in _PRINTED if name in row}
    return {
        title: row[name] if factor is None else round(row[name] * factor, 4) for name, (title, factor) in known.items()
    }


def _charts(found: Sequence[dict[str, Any]]) -> None:
    axes = varying(found)
    one, two, three, four = st.columns([2, 2, 1, 1], vertical_alignment="bottom")
    there = [name for name in MEASURES if any(row[name] is not None for row in found)]
    measure = one.selectbox("Show", there, format_func=lambda name: MEASURES[name][0], key="s_measure")
    axis = two.selectbox("Against", axes, format_func=lambda name: AXES[name], key="s_axis")
    log = three.toggle("Logarithmic", key="s_log")
    form = four.segmented_control(
        "Pictures", ["PNG", "SVG"], default="PNG", key="s_form", help="What the camera saves."
    )
    plot(against(found, measure, axis, log=log), config=picture(form), key="s_chart")
    if len(axes) > 1:
        mode = (
            st.segmented_control("Heat map of", list(dict.fromkeys(row["mode"] for row in found)), key="s_heat")
            or "cached"
        )
        plot(heat(found, measure, mode, axes[0], axes[1]), config=picture(form), key="s_heat_chart")


def _kept() -> None:
    """Sweeps of earlier days."""
    found = library().find(kind="sweep", limit=20)
    if not found:
        return
    st.subheader("Earlier sweeps", anchor=False)
    for stored in found:
        label = f"{stored.created:%Y-%m-%d %H:%M}, {stored.title or stored.id}, {stored.state}"
        if st.button(plain(label), key=f"s_open_{stored.id}", type="tertiary"):
            links.write("sweep", {"sweep": stored.id})
            st.rerun()
