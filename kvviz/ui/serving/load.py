"""The serving page's second section: the same requests at growing rates, throughput beside waiting."""

from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvviz.base.words import human, two_digits
from kvviz.charts.load import latency_figure, steps_figure, throughput_figure, waits_figure
from kvviz.experiments.batching.policies import POLICIES
from kvviz.experiments.batching.words import mark
from kvviz.experiments.comparison.figures import tail, tail_said
from kvviz.experiments.load.figures import FREE, counts, goodput
from kvviz.experiments.load.spec import LoadSpec
from kvviz.experiments.load.words import (
    capacity,
    claim,
    early_wait,
    exact,
    latency_claim,
    sentences,
    step_error,
    steps_claim,
    within,
)
from kvviz.server.scheduler import Scheduler
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.serving.batching import PLACES as BATCHED
from kvviz.ui.serving.form import ITLS, PLACES, SECONDS, TTFTS, progress, times_of, whose
from kvviz.ui.shared.experiment import Document, measured, run_bar
from kvviz.ui.shared.fold import fold
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.model_choice import accepted
from kvviz.ui.shared.plain import errors_said
from kvviz.ui.shared.plots import drawn_once, plot
from kvviz.ui.shared.tables import draw_table

_LIMITS = (
    ("ttft", TTFTS, "Your limit: the first token within, ms"),
    ("itl", ITLS, "Your limit: a request's mean ITL within, ms"),
)
SLOTS = 256  # of the memory for each place: more than any of the requests has tokens


def load_spec(model: str, policy: str = LoadSpec.policy, places: int = 16, seconds: int = 20) -> LoadSpec:
    """What the section asks for: the same requests at each visit."""
    return LoadSpec(model, policy=policy, seconds=seconds, places=places, slots=SLOTS * places)


def section(scheduler: Scheduler, form: Form) -> None:
    """Draw the form, the measurement and what it shows."""
    st.markdown(TEXTS["serving"]["load"])
    bar = run_bar("load")
    with errors_said():
        spec = _ask(bar, scheduler, form)
        accepted(scheduler, spec.work())
        words = f"Up to {spec.requests} requests at each rate, at most {spec.seconds} s in all."
        draw = partial(_draw, form)
        measured(scheduler, spec, draw, place=bar, key="vl", words=words, progress=progress, press="Find the knee")


def _ask(bar: DeltaGenerator, scheduler: Scheduler, form: Form) -> LoadSpec:
    allowed = [places for places in PLACES if places <= scheduler.limits.batch] or PLACES[:1]
    form["places"] = min(form["places"], allowed[-1])
    with bar:
        policy = st.selectbox(
            "Policy", format_func=lambda name: POLICIES[name].title, width=270, **form.choice("policy", list(POLICIES))
        )
        places = st.select_slider("Requests at once, at most", allowed, width=200, **form.value("places"))
        seconds = st.select_slider("Time limit, s", SECONDS, width=160, **form.value("seconds"))
    return load_spec(form["model"], policy, places, seconds)


def _draw(form: Form, found: Document) -> None:
    st.header(claim(found), anchor="load")
    left, right = st.columns(2, gap="large")
    plot(drawn_once(throughput_figure, found), left, key="v_load_throughput")
    plot(drawn_once(waits_figure, found), right, key="v_load_waits")
    curve = TEXTS["serving"]["load_curve"].format(ranks=tail_said(*counts(found["rows"])))
    st.markdown(f"{curve}\n\n{early_wait(found)}")
    st.caption(f"{capacity(found)} {room(found['spec']['places'])}")
    fold("Your own limits (goodput), and every rate in figures", "v_limits", lambda: _limits(form, found))

    def steps() -> None:
        st.markdown(f"**{steps_claim(found)}**")
        left, right = st.columns(2, gap="large", vertical_alignment="center")
        plot(drawn_once(steps_figure, found), left, key="v_load_steps")
        right.markdown(TEXTS["serving"]["load_steps"].format(free=FREE))
        _crossover(found)

    fold("Why a full batch pays: a step reads the weights once for all its sequences", "v_load_why", steps)

    def said() -> None:
        st.markdown("\n".join(f"- {sentence}" for sentence in sentences(found)[1:]))

    fold("What the figures say, in sentences", "v_load_said", said)
    policy = POLICIES[found["spec"]["policy"]].title
    once = f"{found['requests']} requests at each rate, served once"
    st.caption(f"{whose(found)}; {policy}; {once}. {found['note']}")


def room(places: int) -> str:
    """Say how many requests run at once at most, here and on the tab whose requests may wait at a lower rate."""
    there = f", {BATCHED} on *Continuous batching*" if places != BATCHED else ""
    return f"At most {places} run at once here{there}."


def _limits(form: Form, found: Document) -> None:
    """Draw how long requests wait at each rate, beside two limits of the reader's own, and how many keep to both."""
    limits = []
    for place, (name, choices, label) in zip(st.columns(2, gap="large"), _LIMITS, strict=True):
        place.markdown(f"**{latency_claim(found, name)}**")
        form[name] = place.select_slider(label, choices, **form.value(name))
        limits.append(form[name] / 1e3)
        plot(drawn_once(latency_figure, found, name, limits[-1]), place, key=f"v_load_{name}")
    st.caption(TEXTS["serving"]["load_waits"])
    st.markdown(within(found, *limits))
    plot(drawn_once(throughput_figure, found, *limits), key="v_load_goodput")
    points = [*found["rows"], found["at_once"]]
    called = tail(*counts(points))
    draw_table([_row(point, called, *limits) for point in points], key="v_load_table")


def _row(point: Document, called: str, ttft_s: float, itl_s: float) -> dict[str, object]:
    names = {"TTFT p50": "ttft_s_p50", f"TTFT {called}": "ttft_s_p99", "ITL p50": "itl_s_p50", "ITL p99": "itl_s_p99"}
    foretold = point["predicted"]
    return {
        "Offered": f"{exact(point['rate'])}/s" if point["rate"] else "all at once",
        "Completed": f"{mark(point)}{two_digits(point['completed_per_s'])}/s",
        "Predicted": f"{two_digits(foretold['completed_per_s'])}/s" if foretold else "–",
        "Goodput": f"{mark(point)}{two_digits(goodput(point, ttft_s, itl_s))}/s",
        **times_of(point, names),
        "Queue": f"grows by {two_digits(point['per_s'])} ± {two_digits(point['within'])}/s"
        if point.get("unbounded")
        else "–",
    }


def _crossover(found: Document) -> None:
    """Typeset the batch at which the caches of a step are more bytes than the weights, and say how it was predicted."""
    if heavy := found["outweighs"]:
        weights, cache, batch = heavy["weight_bytes"], heavy["cache_bytes"], heavy["batch"]
        st.markdown(f"**When a step reads more of caches than of weights**, at {heavy['tokens']:,} tokens each")
        st.latex(
            rf"n \cdot \text{{cache}} > \text{{weights}} \iff n > \frac{{{_tex(weights)}\ \text{{B}}}}"
            rf"{{{_tex(cache)}\ \text{{B}}}} = {weights / cache:.3g}"
        )
        after = f"From **{batch}** sequences on." if batch else "Never: more sequences read more experts."
        each = f"{human(weights)} of weights are read once for all, {human(cache)} of keys and values for each."
        st.caption(f"{after} {each}")
    if said := step_error(found):
        st.caption(f"{said} {TEXTS['serving']['load_error']}")


def _tex(count: int) -> str:
    return f"{count:,}".replace(",", "{,}")
