"""The serving page's first section: requests decoded together by a real engine, under policies below one another."""

import streamlit as st

from kvviz.base.words import millis
from kvviz.charts.gantt import KINDS, gantt_figure
from kvviz.charts.memory_map import KEY, STYLE, memory_map
from kvviz.experiments.batching.spec import BatchingSpec
from kvviz.experiments.batching.trace import draw_trace
from kvviz.experiments.batching.words import claim, mark
from kvviz.server.scheduler import Scheduler
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.serving.form import LOADS, MEMORIES, progress
from kvviz.ui.shared.experiment import Document, measured, run_bar
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.model_choice import accepted, title, weights_in_words
from kvviz.ui.shared.plain import errors_said
from kvviz.ui.shared.plots import colour_key, plot, shades
from kvviz.ui.shared.tables import draw_table, localized

REQUESTS, LONGEST, PLACES, SEED = 24, 192, 6, 5


def batching_spec(model: str, load: int = 80, memory: int = 512) -> BatchingSpec:
    """What the section asks for: the same requests at each visit, `load` a second, in so many slots."""
    trace = draw_trace(REQUESTS, load, LONGEST, seed=SEED)
    return BatchingSpec(model, trace.arrivals_s, trace.prompts, trace.answers, places=PLACES, slots=memory)


def section(scheduler: Scheduler, form: Form) -> None:
    """Draw the form, the measurement and what it shows."""
    st.markdown(TEXTS["serving"]["together"])
    bar = run_bar()
    with bar:
        load = st.select_slider("Requests a second", LOADS, width=240, **form.value("load"))
        memory = st.select_slider("Memory of the engine, slots", MEMORIES, width=240, **form.value("memory"))
    words = (
        f"{REQUESTS} requests to {title(form['model'])}, the model of *Prefix sharing*; at most {PLACES} run at once."
    )
    with errors_said():
        spec = batching_spec(form["model"], load, memory)
        accepted(scheduler, spec.work())
        measured(scheduler, spec, _draw, place=bar, key="vb", words=words, progress=progress, press="Serve them")


def _draw(found: Document) -> None:
    st.header(claim(found["rows"]), anchor="continuous-batching")
    colour_key(shades(*KINDS.values()))
    plot(gantt_figure(found["rows"]), key="v_gantt")
    st.caption(TEXTS["serving"]["gantt"])
    st.fragment(_moment)(found)
    draw_table([_row(row) for row in found["rows"]], key="v_together_table", columns=localized(*_COUNTS))
    with st.expander("What the figures say, in sentences"):
        st.markdown("\n".join(f"- {sentence}" for sentence in found["sentences"]))
    place = found["environment"]
    whose = f"{found['title']}, {weights_in_words(found['weights'])}, {place['dtype']}, on {place['device_name']}"
    st.caption(f"{whose}. {found['note']}")


def _moment(found: Document) -> None:
    """Draw the blocks of one policy after one of its steps."""
    rows = {row["title"]: row for row in found["rows"] if len(row["pictures"]) > 1}
    if not rows:
        return
    left, right = st.columns(2, gap="large", vertical_alignment="bottom")
    row = rows[
        left.segmented_control("Whose blocks", list(rows), default=list(rows)[-1], key="v_blocks_of")
        or next(iter(rows))
    ]
    stride, last = row["stride"], len(row["pictures"]) * row["stride"]
    step = right.slider(
        "Step", stride, last, last // 2 // stride * stride or stride, stride, key=f"v_step_{stride}_{last}"
    )
    steps = {name: column[step - 1] for name, column in row["steps"].items()}
    busy = f"{steps['running']} run, {steps['waiting']} wait; {steps['computed']} tokens computed in this step"
    st.markdown(f"**Step {step:,}**, at {steps['ended_s']:.3g} s: {busy}")
    st.html(STYLE)
    st.html(memory_map(row["pictures"][step // stride - 1], found["spec"]["slots"]))
    colour_key(KEY)
    st.caption(TEXTS["serving"]["together_map"])


_COUNTS = {"Preempted": "preempted", "Computed again": "recomputed_tokens", "Starved": "starved"}
_TIMES = {
    "First token p50": "ttft_s_p50",
    "First token p99": "ttft_s_p99",
    "ITL p50": "itl_s_p50",
    "ITL p99": "itl_s_p99",
}


def _row(row: Document) -> dict[str, object]:
    times = {head: "–" if row[name] is None else mark(row) + millis(row[name]) for head, name in _TIMES.items()}
    same = "yes" if row["identical"] else "no"
    rate = f"{mark(row)}{row['tokens_per_s']:,.0f}" if row["tokens_per_s"] else "–"
    return {
        "Policy": row["title"],
        "Tokens/s": rate,
        **times,
        **{h: row[n] for h, n in _COUNTS.items()},
        "Same tokens": same,
    }
