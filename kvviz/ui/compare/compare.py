"""The compare page's widgets: runs found and picked, their charts, their figures, and what to do with them."""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.base.words import human
from kvviz.charts.compare import ALIGNMENTS, Curve, overlay
from kvviz.charts.compare import MOST as POINTS
from kvviz.server.persister import library
from kvviz.store.compare_runs import Row, differences, names, rows
from kvviz.store.db.stored import Run, Stored
from kvviz.ui.shared import links
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.plots import CHART, plot
from kvviz.ui.shared.session import may_change

MOST = 6  # runs over one another; more can't be told apart
PAGE = 50  # comparisons in a list


def picked() -> list[Run]:
    """The runs that the address names, and a way to change them."""
    _take_link()
    _find()
    runs = [run for run in map(_read, st.session_state.c_runs) if run is not None]
    gone = len(st.session_state.c_runs) - len(runs)
    if gone:
        st.warning(f"{gone} of the runs in this link are not kept here; they may have been deleted.")
    ids = [run.id for run in runs]
    links.write("compare", {"runs": ",".join(ids)} if ids else {})
    return runs


def _take_link() -> None:
    """Take over a link that this page did not write itself: a fresh visit, a room, the browser's back button."""
    asked = (links.arrived("compare") or {}).get("runs")
    if "c_runs" not in st.session_state or asked is not None:
        st.session_state.c_runs = [name for name in (asked or "").split(",") if name][:MOST]


def _read(run_id: str) -> Run | None:
    try:
        run = library().run(run_id)
    except KvvizError as error:
        st.error(plain(error))
        return None
    return run if run is not None and not run.comparison.deleted else None


def _find() -> None:
    """Search what is kept; ticked rows are laid over one another."""
    chosen = st.session_state.c_runs
    with st.expander("Pick runs", expanded=not chosen):
        left, right = st.columns([3, 1], vertical_alignment="bottom")
        text = left.text_input("Search titles, prompts, models and tags", key="c_search")
        count = library().count(text)
        pages = max(1, -(-count // PAGE))
        number = right.number_input(f"Page of {pages}", 1, pages, key=f"c_page_{pages}")
        found = library().find(text, limit=PAGE, offset=(int(number) - 1) * PAGE)
        if not found:
            st.caption("Nothing is kept yet: run a comparison on the live page." if not text else "Nothing fits.")
            return
        table = [(stored, mode) for stored in found for mode in stored.modes if stored.headline]
        event = st.dataframe(
            [_list_row(stored, mode) for stored, mode in table],
            hide_index=True,
            width="stretch",
            height=320,
            on_select="rerun",
            selection_mode="multi-row",
            key=f"c_table_{text}_{number}",
        )
        ticked = [f"{table[i][0].id}-{table[i][1]}" for i in event["selection"]["rows"] if i < len(table)]
        fresh = [run for run in ticked if run not in chosen]
        add, clear = st.columns([1, 5])
        if add.button("Lay over one another", disabled=not fresh, type="primary", key="c_add"):
            st.session_state.c_runs = [*chosen, *fresh][:MOST]
            st.rerun()
        if clear.button("Take all away", disabled=not chosen, key="c_clear"):
            st.session_state.c_runs = []
            st.rerun()


def _list_row(stored: Stored, mode: str) -> dict[str, Any]:
    figures = next((row for row in stored.headline if row.get("mode") == mode), {})
    return {
        "when": f"{stored.created:%Y-%m-%d %H:%M}",
        "title": stored.title or stored.prompt[:60] or f"{stored.prompt_tokens} random tokens",
        "model": stored.model,
        "mode": mode,
        "prompt": stored.prompt_tokens,
        "new": stored.new_tokens,
        "ITL, ms": round(figures["itl_s"] * 1000, 3) if figures.get("itl_s") else None,
        "total, s": round(figures["total_s"], 3) if figures.get("total_s") else None,
        "speed-up": round(figures["speedup"], 2) if figures.get("speedup") else None,
        "device": stored.device_name,
        "dtype": stored.dtype,
        "tags": ", ".join(stored.tags),
        "from": {"here": "this device", "run": "command line", "import": "a file"}.get(stored.origin, stored.origin),
    }


def overlaid(runs: Sequence[Run]) -> None:
    """The curves over one another, the table of figures, and in words what was not the same work."""
    labels = names(runs)
    for words in differences(runs):
        st.info(f"Not the same work: {plain(words)}.", icon=":material/info:")
    one, two, three, four, five = st.columns([2, 2, 1, 1, 1], vertical_alignment="bottom")
    by = one.segmented_control(
        "Lined up by", list(ALIGNMENTS), format_func=lambda name: ALIGNMENTS[name], default="step", key="c_by"
    )
    base = two.selectbox("Against", range(len(runs)), format_func=lambda i: labels[i], key=f"c_base_{len(runs)}")
    log = three.toggle("Logarithmic", key="c_log")
    apart = four.toggle("A | B", key="c_apart", disabled=len(runs) < 2, help="Two columns for the projector.")
    form = five.segmented_control(
        "Pictures", ["PNG", "SVG"], default="PNG", key="c_form", help="What the camera saves."
    )
    curves = [_curve(run, label) for run, label in zip(runs, labels, strict=True)]
    if apart and len(runs) > 1:
        _side_by_side(runs, curves, by or "step", log, form)
    else:
        plot(overlay(curves, by=by or "step", log=log, baseline=base), config=picture(form), key="c_overlay")
        thin = " Thin and dashed: what was predicted before the run." if any(c.predicted_s for c in curves) else ""
        words = "Drag over one chart to zoom all; double-click to zoom out. The band is between the quartiles."
        st.caption(words + thin)
        if max(len(curve.step_s) for curve in curves) > POINTS:
            st.caption("Of these long runs the lowest and the highest of every few steps are drawn.")
    st.dataframe([_figures(row) for row in rows(runs, labels, base)], hide_index=True, width="stretch", key="c_rows")
    st.caption(
        "Ratios are the baseline's figure over the run's: 2 means twice as fast. *Beyond the spread*: the slowest pass "
        "of the faster run is faster than the fastest pass of the slower one."
    )


def picture(form: str | None) -> dict[str, Any]:
    """Options of a chart whose camera button saves PNG or SVG, in the browser."""
    image = {"format": (form or "PNG").lower(), "filename": "kvviz", "scale": 2 if form != "SVG" else 1}
    return {**CHART, "displayModeBar": True, "toImageButtonOptions": image}


def _curve(run: Run, label: str) -> Curve:
    figures = run.figures
    return Curve(
        name=label,
        step_s=tuple(figures["step_s"]),
        q1_s=tuple(figures["step_s_q1"]),
        q3_s=tuple(figures["step_s_q3"]),
        cache_bytes=run.cache_bytes,
        prompt_tokens=run.comparison.prompt_tokens or 0,
        batch=run.comparison.batch or 1,
        predicted_s=tuple(figures.get("predicted_s") or ()),
    )


def _side_by_side(runs: Sequence[Run], curves: Sequence[Curve], by: str, log: bool, form: str | None) -> None:
    """A and B in two columns, on equal axes, with their figures large and their texts below."""
    top = max(max(curve.q3_s) for curve in curves[:2]) * 1000
    for column, run, curve, letter in zip(st.columns(2, gap="large"), runs, curves, "AB", strict=False):
        with column:
            st.subheader(f"{letter}: {plain(curve.name)}", anchor=False)
            st.metric("Inter-token latency", _ms(run.figures.get("itl_s")))
            figure = overlay([curve], by=by, log=log)
            if not log:
                figure.update_yaxes(range=[0, top * 1.05], row=1, col=1)
            plot(figure, config=picture(form), key=f"c_side_{letter}")
            text = run.figures.get("text")
            st.text(text if isinstance(text, str) else "\n".join(text or []))


def _ms(seconds: float | None) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds is not None else "none"


def _figures(row: Row) -> dict[str, Any]:
    return {
        "run": row.name,
        "TTFT": _ms(row.ttft_s),
        "ITL": _ms(row.itl_s),
        "ITL p99": _ms(row.itl_p99_s),
        "total": f"{row.total_s:.3g} s" if row.total_s else "none",
        "tokens/s": f"{row.tokens_per_s:.3g}" if row.tokens_per_s else "none",
        "cache at the end": human(row.cache_bytes) if row.cache_bytes is not None else "unknown",
        "total, ratio": f"{row.total_ratio:.3g}×" if row.total_ratio else "",
        "ITL, ratio": f"{row.itl_ratio:.3g}×" if row.itl_ratio else "",
        "beyond the spread": {True: "yes", False: "no", None: ""}[row.beyond],
    }


def manage(runs: Sequence[Run]) -> None:
    """Rename, tag, delete with undo."""
    deleted = st.session_state.get("c_deleted")
    if deleted:
        words, undo = st.columns([5, 1], vertical_alignment="center")
        words.info(f"{plain(deleted['title'])} was deleted.")
        if undo.button("Undo", key="c_undo") and may_change(library().get(deleted["id"])):
            library().restore(deleted["id"])
            st.session_state.c_runs = deleted["runs"]
            st.session_state.c_deleted = None
            st.rerun()
    stored = {run.comparison.id: run.comparison for run in runs if may_change(run.comparison)}
    if not stored:
        if runs:
            st.caption("These runs are other browsers', which alone may name or delete them.")
        return
    with st.expander("Name, tag, delete"):
        chosen = st.selectbox("Comparison", list(stored), format_func=lambda name: _title(stored[name]), key="c_which")
        _edit(stored[chosen])


def _title(stored: Stored) -> str:
    return stored.title or f"{stored.model}, {stored.created:%Y-%m-%d %H:%M}"


def _edit(stored: Stored) -> None:
    one, two, three, four = st.columns([3, 3, 1, 1], vertical_alignment="bottom")
    title = one.text_input("Title", stored.title, key=f"c_title_{stored.id}", max_chars=200)
    tags = two.text_input("Tags, separated by commas", ", ".join(stored.tags), key=f"c_tags_{stored.id}", max_chars=200)
    if three.button("Save", key="c_save") and may_change(stored):
        library().rename(stored.id, title)
        library().tag(stored.id, [tag.strip() for tag in tags.split(",") if tag.strip()])
        st.rerun()
    if four.button("Delete", key="c_delete") and may_change(stored):
        library().delete(stored.id)
        kept = [name for name in st.session_state.c_runs if not name.startswith(f"{stored.id}-")]
        st.session_state.c_deleted = {"id": stored.id, "title": _title(stored), "runs": st.session_state.c_runs}
        st.session_state.c_runs = kept
        st.rerun()
