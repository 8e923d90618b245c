"""What the sweep page shows: a sweep as it fills in, its table and charts, and the sweeps that are kept."""

import json
from collections.abc import Sequence

import streamlit as st

from kvviz.base.words import human, lasting
from kvviz.charts.sweep import AXES, MEASURES, against, heat, varying
from kvviz.decoding.modes import title_of
from kvviz.experiments.eta import in_line
from kvviz.experiments.kind import Record
from kvviz.experiments.sweep.rows import rows
from kvviz.experiments.sweep.spec import PRESETS, Preset, SweepSpec
from kvviz.experiments.sweep.words import caveats, contrasts, findings
from kvviz.server.jobs import Job
from kvviz.server.persister import library
from kvviz.server.scheduler import Scheduler
from kvviz.server.script_slots import turn
from kvviz.ui.shared.experiment import watch_new
from kvviz.ui.shared.form import Address
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.plots import choose_picture, plot
from kvviz.ui.shared.tables import draw_table


def shown(scheduler: Scheduler, watched: str | None, address: Address) -> None:
    """Draw the sweep that is watched, once a second while it runs; without one, those that are kept."""
    if not watched:
        _earlier(address)
        return
    work = scheduler.get(watched)
    if work is None or work.kind != SweepSpec.kind:
        st.warning("There is no such sweep here; it may have been deleted.")
        return

    def look() -> None:
        with turn():
            _results(scheduler, watched, address)

    st.fragment(look, run_every=1.0 if work.active else None)()


def _results(scheduler: Scheduler, sweep_id: str, address: Address) -> None:
    work = scheduler.get(sweep_id)
    if work is None:
        return
    spec = SweepSpec.from_dict(work.description())
    records = [*work.earlier, *(json.loads(text) for text in list(work.records))]
    _progress(scheduler, work, records)
    if not work.active and work.state != "done" and st.button("Go on where it ended", key="s_resume"):
        earlier = [record for record in records if record["t"] in ("cell_proof", "cell_pass")]
        watch_new(scheduler, spec, address, "sweep", earlier)
    found = rows(records, spec)
    if found:
        _tables(PRESETS.get(spec.preset), found)
        _charts(found)
    for record in records:
        if record["t"] == "cell_failed":
            st.warning(plain(record["message"]))
    if not work.active and st.session_state.get("s_ended") != sweep_id:
        st.session_state.s_ended = sweep_id
        st.rerun()  # the whole page: the buttons and the timer change


def _progress(scheduler: Scheduler, work: Job, records: Sequence[Record]) -> None:
    last = next((record for record in reversed(records) if record["t"] == "progress"), None)
    if work.state == "queued":
        st.progress(0.0, in_line(scheduler.ahead(work.id), scheduler.expected_wait(work.id), scheduler.held_by))
    elif work.active and last:
        share = last["done"] / last["of"] if last["of"] else 0.0
        left = f", {lasting(last['left_s'])} left" if last.get("left_s") is not None else ""
        st.progress(min(1.0, share), f"{last['done']} of {last['of']} passes{left}")
    elif work.active:
        st.progress(0.0, "0 of … passes")
    elif work.state == "done":
        st.progress(1.0, "Done")
    else:
        st.warning(plain(work.message or f"This sweep was {work.state}; what it measured is below."))


def _tables(preset: Preset | None, found: Sequence[Record]) -> None:
    """Draw what was measured beside what was published, and say what is flat and what climbs: read off the rows."""
    published = preset.published if preset else None
    st.markdown("**Measured here**")
    draw_table([_row(row) for row in found], key="s_rows")
    sentences = findings(found)
    if preset and published:  # on other hardware: it is the shape that should come back
        whose = f"**As published** ([source]({preset.source}))" if preset.source else "**Elsewhere**"
        st.markdown(f"{whose}: {published.note}")
        draw_table([_printed(row) for row in published.rows], key="s_published")
        sentences = [*sentences, *contrasts(found, published)]
    st.markdown("\n".join(f"- {plain(sentence)}" for sentence in sentences))
    for sentence in caveats(found):
        st.caption(plain(sentence))


def _row(row: Record) -> dict[str, object]:
    return {
        "model": row["model"],
        "prompt": row["prompt_tokens"],
        "new": row["new_tokens"],
        "batch": row["batch"],
        "mode": title_of(row["mode"]),
        "speed-up": round(row["speedup"], 2) if row["speedup"] else None,
        "TTFT, ms": _ms(row["ttft_s"]),
        "ITL, ms": _ms(row["itl_s"]),
        "total, s": round(row["total_s"], 3),
        "tokens/s": round(row["tokens_per_s"], 1),
        "cache": human(row["cache_bytes"]) if row["cache_bytes"] is not None else None,
        "peak": human(row["peak_bytes"]) if row["peak_bytes"] is not None else None,
        "passes": row["repeats"],
        "same tokens": {True: "yes", False: "no"}.get(row["identical"], ""),
    }


def _ms(seconds: float | None) -> float | None:
    return round(seconds * 1000, 3) if seconds is not None else None


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


def _printed(row: Record) -> dict[str, object]:
    known = [(row[name], *_PRINTED[name]) for name in _PRINTED if name in row]
    return {title: title_of(value) if factor is None else round(value * factor, 4) for value, title, factor in known}


def _charts(found: Sequence[Record]) -> None:
    axes = varying(found)
    one, two, three, four = st.columns([2, 2, 1, 1], vertical_alignment="bottom")
    there = [name for name in MEASURES if any(row[name] is not None for row in found)]
    measure = one.selectbox("Show", there, format_func=lambda name: MEASURES[name][0], key="s_measure")
    axis = two.selectbox("Against", axes, format_func=lambda name: AXES[name], key="s_axis")
    log = three.toggle("Logarithmic", key="s_log")
    picture = choose_picture(four, "s_form")
    plot(against(found, measure, axis, log=log), config=picture, key="s_chart")
    if len(axes) > 1:
        modes = list(dict.fromkeys(row["mode"] for row in found))
        mode = st.segmented_control("Heat map of", modes, format_func=title_of, key="s_heat")
        plot(heat(found, measure, mode or "cached", axes[0], axes[1]), config=picture, key="s_heat_chart")


def _earlier(address: Address) -> None:
    """Offer the sweeps that are kept."""
    found = library().find(kind="sweep", limit=20)
    if not found:
        return
    st.header("Earlier sweeps")
    for stored in found:
        label = f"{stored.created:%Y-%m-%d %H:%M}, {stored.title or stored.id}, {stored.state}"
        if st.button(plain(label), key=f"s_open_{stored.id}", type="tertiary"):
            address.write({"sweep": stored.id})
            st.rerun()
