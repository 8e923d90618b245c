"""What the compare page shows of the picked runs: their curves over one another, and their figures."""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from kvviz.base.words import brief, human, millis, ratio
from kvviz.charts.claims import of_curves, of_passes, of_trust
from kvviz.charts.curves import (
    ALIGNMENTS,
    MAX_POINTS,
    VIEWS,
    WIDE,
    Curve,
    curve_of,
    mark_the_end,
    mark_the_prefill,
    overlay,
    with_ends,
)
from kvviz.charts.palette import lines_of
from kvviz.charts.passes import Timed, passes_figure
from kvviz.experiments.comparison.figures import mark
from kvviz.store.compare_runs import Row, apart, differences, names, rows
from kvviz.store.db.stored import Run
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.plots import Options, choose_picture, drawn_once, plot
from kvviz.ui.shared.tables import draw_table


def overlaid(runs: Sequence[Run]) -> None:
    """Draw the curves over one another, the table of figures, and say what was not the same work."""
    labels = names(runs)
    answer, picture = st.container(), st.container()
    show: dict[str, Any] = {"format_func": lambda name: VIEWS[name][0], "default": "step", "required": True}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        view = st.segmented_control("Show", list(VIEWS), key="c_view", help=TEXTS["compare"]["views"], **show)
        base = st.selectbox(
            "Speed-up against", range(len(runs)), format_func=lambda i: labels[i], key=f"c_base_{len(runs)}", width=260
        )
        with st.popover("Axes, columns, pictures"):
            by = st.segmented_control(
                "Lined up by", list(ALIGNMENTS), format_func=ALIGNMENTS.__getitem__, default="step", key="c_by"
            )
            log = st.toggle("Logarithmic", key="c_log")
            in_columns = st.toggle(
                "A | B", key="c_apart", disabled=len(runs) < 2, help="Two columns for the projector."
            )
            form = choose_picture("c_form")
    with answer:
        _answer(runs, labels, base)
    curves = [
        curve_of(run.figures, run.comparison.prompt_tokens or 0, label, run.repeats)
        for run, label in zip(runs, labels, strict=True)
    ]
    with picture:
        if in_columns and len(runs) > 1:
            _side_by_side(runs, curves, by or "step", log, view, form)
        else:
            figure = drawn_once(_over_one_another, curves, view, by or "step", log, base)
            plot(figure, claim=plain(of_curves(curves, view, base)), config=form, key="c_overlay")
    thin = " Thin and dashed: what was predicted before the timed passes." if any(c.predicted_s for c in curves) else ""
    st.caption(
        "Drag over the chart to zoom; double-click to zoom out. The band is between the quartiles; of a long line "
        f"both it and the bold line are running medians of {WIDE} steps. At the end: the median of the last tenth of "
        f"the tokens.{thin}"
    )
    if max(len(curve.step_s) for curve in curves) > MAX_POINTS:
        st.caption("Of these long runs the lowest and the highest of every few steps are drawn.")
    draw_table([_figures(row) for row in rows(runs, labels, base)], key="c_rows")
    st.caption(TEXTS["compare"]["ratios"])


def _over_one_another(curves: Sequence[Curve], view: str, by: str, log: bool, base: int) -> object:
    """Draw the curves with what each shows at its end; of the time per token, the first and last ones are marked."""
    figure = overlay(with_ends(curves, view), by=by, log=log, baseline=base, view=view)
    return mark_the_prefill(mark_the_end(figure, curves, by), curves, by) if view == "step" else figure


def _answer(runs: Sequence[Run], labels: Sequence[str], base: int) -> None:
    """Draw which run is faster, by how much, and what the passes say for it; then what was not alike."""
    timed = passes_of(runs, labels, base)
    others = [run for number, run in enumerate(timed) if number != base]
    st.header(plain(of_passes(timed[base], others) or labels[base]), anchor=False)
    measure = TEXTS["compare"]["whole_run" if _alike(runs) else "per_token"]
    plot(drawn_once(passes_figure, {"": timed}, measure), key="c_passes")
    said = [f"{trust}."] if (trust := plain(of_trust(timed[base], others))) else []
    said += [TEXTS["compare"]["about"]] if any(run.about for run in timed) else []
    st.markdown("  \n".join(said))
    st.caption(TEXTS["compare"]["bars"])
    if other := differences(runs):
        listed = "".join(f"\n- {plain(each)}" for each in other)
        st.info(f"**Not the same work.** These runs have{listed}", icon=":material/info:")
    for words in apart(runs, labels):
        st.warning(plain(words), icon=":material/warning:")


def _alike(runs: Sequence[Run]) -> bool:
    """Whether all runs made as many tokens, so that their whole times can be held against one another."""
    return len({len(run.figures["step_s"]) for run in runs}) == 1


def passes_of(runs: Sequence[Run], labels: Sequence[str], base: int) -> list[Timed]:
    """The runs' passes beside the baseline's: their seconds, or those of a new token where other numbers were made."""
    lines, shared, against = lines_of([run.mode for run in runs]), _alike(runs), runs[base]
    sizes = [1 if shared else len(run.figures["step_s"]) for run in runs]
    typical = [run.figures["total_s"] / size for run, size in zip(runs, sizes, strict=True)]
    return [
        Timed(
            name=label,
            colour=line["color"],
            typical=seconds,
            passes=tuple(sum(each) / size for each in run.repeats),
            ratio=typical[base] / seconds if run is not against else None,
            interval=run.figures.get("speedup_interval") if shared and _of_one(run, against) else None,
            about=mark(run.figures),
        )
        for run, label, line, size, seconds in zip(runs, labels, lines, sizes, typical, strict=True)
    ]


def _of_one(run: Run, baseline: Run) -> bool:
    """Whether the run's own speed-up is the one over this baseline."""
    return baseline.mode == "uncached" and run.comparison.id == baseline.comparison.id


def _side_by_side(
    runs: Sequence[Run], curves: Sequence[Curve], by: str, log: bool, view: str, picture: Options
) -> None:
    """Draw A and B in two columns, on equal axes, with their figures large and their texts below."""
    top = max(curve.total_s if view == "total" else 1000 * max(curve.q3_s) for curve in curves[:2])
    for column, run, curve, letter in zip(st.columns(2, gap="large"), runs, curves, "AB", strict=False):
        with column:
            st.header(f"{letter}: {plain(curve.name)}", anchor=False)
            st.metric("Inter-token latency", _ms(run.figures.get("itl_s"), mark(run.figures)))
            figure = overlay([curve], by=by, log=log, view=view)
            if not log:
                figure.update_yaxes(range=[0, top * 1.05], row=1, col=1)
            plot(figure, config=picture, key=f"c_side_{letter}")
            text = run.figures.get("text")
            st.text(text if isinstance(text, str) else "\n".join(text or []))


def _ms(seconds: float | None, about: str = "") -> str:
    return about + millis(seconds, 2 if about else 3) if seconds is not None else "none"


def _figures(row: Row) -> dict[str, object]:
    figures, cache_bytes = row.run.figures, row.run.figures.get("cache_bytes")
    about = mark(figures)
    digits, rate = 2 if about else 3, figures.get("tokens_per_s")
    return {
        "run": row.name,
        "TTFT": _ms(figures.get("ttft_s"), about),
        "ITL": _ms(figures.get("itl_s"), about),
        "ITL p99": _ms(figures.get("itl_p99_s"), about),
        "total": about + brief(figures["total_s"], digits) if figures.get("total_s") else "none",
        "tokens/s": f"{about}{float(f'{rate:.{digits}g}'):,g}" if rate else "none",
        "cache at the end": human(cache_bytes[-1]) if cache_bytes else "unknown",
        "speed-up, whole run": f"{ratio(row.total_ratio)}×" if row.total_ratio else "",
        "speed-up, per token": f"{ratio(row.itl_ratio)}×" if row.itl_ratio else "",
        "beyond the spread": {True: "yes", False: "no", None: ""}[row.beyond],
    }
