"""What the sweep page shows: a sweep as it fills in, its table and charts, and the sweeps that are kept."""

import json
from collections.abc import Sequence

import streamlit as st

from kvviz.base.words import human, lasting
from kvviz.charts.layout import fit_heights, watermark
from kvviz.charts.sweep import AXES, MEASURES, against, factors_told, far_apart, heat, measures, spread_told, varying
from kvviz.decoding.modes import title_of
from kvviz.experiments.kind import Record
from kvviz.experiments.sweep.by_formula import counted
from kvviz.experiments.sweep.plan import preset_spec
from kvviz.experiments.sweep.rows import rows
from kvviz.experiments.sweep.spec import PRESETS, Preset, SweepSpec
from kvviz.experiments.sweep.words import (
    FIGURES,
    Trend,
    at_points,
    caveats,
    claim,
    contrasts,
    falls,
    first_tokens,
    gain,
    passes,
    reason,
    trends,
    why,
)
from kvviz.experiments.sweep.words import shown as shown_figure
from kvviz.server.jobs import Job
from kvviz.server.persister import library
from kvviz.server.scheduler import Scheduler
from kvviz.server.script_slots import turn
from kvviz.store.db.stored import IMPORTED, Stored
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.experiment import recorded_words, recording, say_recorded, watch_new
from kvviz.ui.shared.fold import fold
from kvviz.ui.shared.form import Address
from kvviz.ui.shared.model_choice import title
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.plots import choose_picture, drawn_once, plot
from kvviz.ui.shared.tables import draw_table

CHANGES = ("itl_s", "total_s", "speedup", "ttft_s", "tokens_per_s", "peak_bytes")
EXPLAINED = ("total_s", "flops", "itl_s", "speedup", "tokens_per_s")  # which the tokens of each step explain


def opening(preset: Preset | None, spec: SweepSpec | None, takes: str) -> None:
    """Before anything runs, say what it `takes` and draw the last sweep of this kind that is kept here, else the
    recording that comes with kvviz, else the published table, else the work that is to come, by formula.
    """
    if preset is not None:
        _first_pictures(preset, spec, takes)
    elif spec is not None:
        st.caption(takes)
        _by_formula(spec, None)


def _first_pictures(preset: Preset, spec: SweepSpec | None, takes: str) -> None:
    stored = next((each for each in _kept() if each.title.startswith(preset.title) and each.state == "done"), None)
    document = library().document(stored.id) if stored else None
    kept = recording(SweepSpec.kind)
    if not (document and document["rows"]) and kept and kept["document"]["spec"] == preset_spec(preset.id).to_dict():
        of = ", ".join(map(title, kept["document"]["spec"]["models"]))
        say_recorded(f"{recorded_words(kept, 'Run', of)} {takes}", "sweep")
        _pictures(kept["document"]["rows"], preset)
        return
    if takes:
        st.caption(takes)
    if stored and document and document["rows"]:
        work, place = ", ".join(document["spec"]["models"]), document["environment"]["device_name"]
        when = f"{stored.created:%Y-%m-%d %H:%M}"
        whose = "A sweep from a file" if stored.origin == IMPORTED else "A kept sweep of this server"
        _pictures(document["rows"], preset, f"{whose}: {plain(work)} on {plain(place)}, {when}.")
    elif preset.published is not None and measures(preset.published.rows):
        _pictures([], preset)
    else:
        _by_formula(spec or preset_spec(preset.id), preset)


def _by_formula(spec: SweepSpec, preset: Preset | None) -> None:
    if found := counted(spec):
        _pictures(found, preset, f"{plain(', '.join(map(title, spec.models)))}: {TEXTS['sweep']['by_formula']}")
    elif preset:
        st.markdown(preset.question)


def _kept() -> Sequence[Stored]:
    return library().find(kind="sweep", limit=20)


def shown(scheduler: Scheduler, watched: str, address: Address) -> None:
    """Draw the sweep that is watched, once a second while it runs."""
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
    imported = work.origin == IMPORTED
    if not (work.active or work.state == "done" or imported) and st.button("Go on where it ended", key="s_resume"):
        earlier = [record for record in records if record["t"] in ("cell_proof", "cell_pass")]
        if watch_new(scheduler, spec, address, "sweep", earlier):
            st.rerun()
    found = rows(records, spec)
    if found:
        preset = PRESETS.get(spec.preset)
        _pictures(found, preset, _whose(records, spec, imported=imported))
        rates = next((record["rates"] for record in reversed(records) if record.get("rates")), None)
        _tables(preset, found, why(spec, rates, found), over=work.state == "done")
    for record in records:
        if record["t"] == "cell_failed":
            st.warning(plain(record["message"]))
    if not work.active and st.session_state.get("s_ended") != sweep_id:
        st.session_state.s_ended = sweep_id
        st.rerun()  # the whole page: the buttons and the timer change


def _progress(scheduler: Scheduler, work: Job, records: Sequence[Record]) -> None:
    last = next((record for record in reversed(records) if record["t"] == "progress"), None)
    if work.state == "queued":
        st.progress(0.0, scheduler.place(work.id).words)
    elif work.active and last:
        share = last["done"] / last["of"] if last["of"] else 0.0
        left = f", {lasting(last['left_s'])} left" if last.get("left_s") is not None else ""
        st.progress(min(1.0, share), f"{last['done']} of {last['of']} passes{left}")
    elif work.active:
        st.progress(0.0, "0 of … passes")
    elif work.state == "done":
        st.caption("Done")
    else:
        st.warning(plain(work.message or f"This sweep was {work.state}; what it measured is below."))


def _whose(records: Sequence[Record], spec: SweepSpec, *, imported: bool) -> str:
    """On what the sweep that is watched was measured, as far as its records tell."""
    places = [record["environment"]["device_name"] for record in records if record.get("environment")]
    where = "elsewhere, from a file" if imported else "on this server"
    return f"Measured {where}: {plain(', '.join(spec.models))}{f' on {plain(places[-1])}' if places else ''}."


def _pictures(found: Sequence[Record], preset: Preset | None, whose: str = "") -> None:
    """Draw what was measured under its claim; what was published is folded up below it, and alone where nothing was."""
    published = preset.published if preset else None
    printed = published.rows if published and measures(published.rows) else ()
    sources = [each for each in (found, printed) if each]
    axes, there = varying(sources[0]), measures(sources[0])
    usual = "flops" if "flops" in there else next((name for name in there if name in measures(sources[-1])), there[0])
    pictures = st.container()
    more = st.expander("How to read it; another figure, axis or scale")
    with more, st.container(horizontal=True, vertical_alignment="bottom"):
        key = f"s_measure_{preset.id}" if preset else "s_measure"
        titles = {name: MEASURES[name][0] for name in there}
        measure = st.selectbox("Show", there, there.index(usual), format_func=titles.__getitem__, key=key, width=300)
        axis = st.selectbox("Against", axes, format_func=AXES.__getitem__, key="s_axis", width=200)
        far = far_apart(sources[0], measure, axis)
        log = st.toggle("Logarithmic", far, key=f"s_log_{far}", width=150)
        picture = choose_picture("s_form")
    drawn = [(whose, found, "")] if found else []
    if preset and published and measure in measures(printed):
        source = _source(preset, published.note, alone=not found)
        drawn.append((source, printed, "Published" if preset.source else "Recorded"))
    for number, (source, each, elsewhere) in enumerate(drawn):
        mark = elsewhere.upper() if published else ""
        place = pictures
        if elsewhere and published and len(drawn) == 2:  # what was measured here is the page's own picture
            place = pictures.expander(TEXTS["sweep"]["beside"].format(whose=elsewhere))
        said = claim(each, measure, axis) or f"{titles[measure].capitalize()}, against {AXES[axis]}"
        if elsewhere and published and len(drawn) == 1:
            place.markdown(f"**{elsewhere}: {published.note}**")
        if not elsewhere or len(drawn) == 1:
            short = gain(each, axis) if measure in ("total_s", "itl_s") else ""
            place.header(short or said, anchor=False)
            if preset:
                place.markdown(preset.question)
        plot(drawn_once(_line, each, measure, axis, log, mark), place, config=picture, key=f"s_chart_{number}")
        if source:
            place.markdown(source)  # in a caption its link would be too pale
        if not number:
            factors, beside = factors_told(each, measure, axis), place
            table = at_points(each, axis) if factors else ""
            timed = bool(table) and measure != "flops"
            if table:
                left, beside = place.columns([5, 3], gap="medium")
                left.markdown(TEXTS["sweep"]["cells"])
                left.markdown(table)
            if why_so := reason(each, axis) if measure in EXPLAINED else "":
                beside.markdown(why_so)
            spread = TEXTS["sweep"]["spread"][measure] if spread_told(found, measure) else ""
            odd = (first_tokens(each), *falls(each, axis)) if timed else ()
            if words := "\n\n".join(filter(None, (" ".join(filter(None, odd)), spread))):
                beside.markdown(words)
            if factors:
                more.caption(TEXTS["sweep"]["factors"] + f" {TEXTS['sweep']['points']}" * timed)
    if len(axes) > 1 and found:
        modes = list(dict.fromkeys(row["mode"] for row in found))
        mode = st.segmented_control("Heat map of", modes, format_func=title_of, key="s_heat")
        usual = "cached" if "cached" in modes else modes[0]
        plot(heat(found, measure, mode or usual, axes[0], axes[1]), config=picture, key="s_heat_chart")


def _line(rows: Sequence[Record], measure: str, axis: str, log: bool, mark: str) -> object:
    """Draw a measure along an axis; rows from elsewhere with their `mark` behind thinner lines."""
    figure = against(rows, measure, axis, log=log)
    fit_heights(figure)
    if mark:
        watermark(figure, mark).update_traces(line_width=1.5, marker_size=6)
    return figure


def _source(preset: Preset, note: str, *, alone: bool) -> str:
    """Whose figures the published ones are, of what, and what to do with them."""
    whose = f"[Published elsewhere]({preset.source})" if preset.source else "Recorded elsewhere"
    run = f" {TEXTS['sweep']['alone']}" if alone else ""
    return f"{whose} ({note}), not measured on this machine.{run}"


def _tables(preset: Preset | None, found: Sequence[Record], reasons: Sequence[str], *, over: bool) -> None:
    """Draw each figure's change along its axis, then every row: what is flat and what climbs is read off the rows.

    Only a sweep that is `over` is held against what was published.
    """
    published = preset.published if preset else None
    _changes(trends(found, CHANGES))
    for sentence in reasons:
        st.caption(plain(sentence))
    if published and over:  # on other hardware: it is the shape that should come back, once every row is there
        st.markdown("\n".join(f"- {plain(sentence)}" for sentence in contrasts(found, published)))
    st.header("Measured here")
    draw_table([_row(row) for row in found], key="s_rows")
    st.caption(TEXTS["sweep"]["bytes"])
    for sentence in caveats(found):
        st.caption(plain(sentence))
    if preset and published:
        rows = published.rows

        def printed() -> None:
            draw_table([_printed(row) for row in rows], key="s_published")

        fold(f"The published figures: {published.note}", "s_printed", printed)


def _changes(found: Sequence[Trend]) -> None:
    """Draw a row for each figure: for each mode its value at both ends of the axis, and what lies between."""
    if not found:
        return
    alongs = [", ".join(part for part in (trend.model, trend.fixed, trend.range) if part) for trend in found]
    one, columns = len(set(alongs)) == 1, dict[str, None]()
    table: dict[tuple[str, str], dict[str, object]] = {}
    for trend, along in zip(found, alongs, strict=True):
        ends = (f"at {trend.start:,}", f"at {trend.end:,}") if one else ("first", "last")
        values = [shown_figure(trend.figure, value) for value in (trend.values[0], trend.values[-1])]
        cells = {f"{title_of(trend.mode)}, {end}": value for end, value in zip(ends, values, strict=True)}
        cells[f"{title_of(trend.mode)}"] = trend.factor
        columns |= dict.fromkeys(cells)
        head: dict[str, object] = {"figure": FIGURES[trend.figure], **({} if one else {"along": along})}
        table.setdefault((along, trend.figure), head).update(cells)
    st.header(f"What changes {found[0].range}" if one else "What changes, and what does not")
    draw_table([{**dict.fromkeys([*row, *columns], None), **row} for row in table.values()], key="s_changes")


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
        "passes": passes(row),
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


def earlier(address: Address) -> None:
    """Offer the sweeps that are kept."""
    found = _kept()
    if not found:
        return
    st.header("Earlier sweeps")
    for stored in found:
        label = f"{stored.created:%Y-%m-%d %H:%M}, {stored.title or stored.id}, {stored.state}"
        if st.button(plain(label), key=f"s_open_{stored.id}", type="tertiary"):
            address.write({"sweep": stored.id})
            st.rerun()
