"""The caches page's tab on forgetting: the map of kept and evicted tokens, and what that loses."""

from functools import partial

import streamlit as st

from kvviz.base.words import human, lasting
from kvviz.caches.designs import tokens_of
from kvviz.charts import palette
from kvviz.charts.forgetting import kl_against_bytes, kl_at_budget
from kvviz.experiments.eta import seconds_of
from kvviz.experiments.forgetting import words
from kvviz.experiments.forgetting.spec import BUDGETS, FORGETTING, ForgettingSpec
from kvviz.experiments.kind import Record
from kvviz.models.sources import weights_in_words
from kvviz.server.scheduler import Scheduler
from kvviz.ui.caches.designs_said import as_named_here, each_design
from kvviz.ui.folders import ASSETS_URL
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.component import component
from kvviz.ui.shared.experiment import Document, measured, run_bar
from kvviz.ui.shared.fold import fold
from kvviz.ui.shared.form import Field, Form
from kvviz.ui.shared.model_choice import accepted, choose_model, choose_precision, decodable
from kvviz.ui.shared.plain import errors_said, plain
from kvviz.ui.shared.plots import drawn_once, plot
from kvviz.ui.shared.tables import draw_table

_map = component("kvviz_forgetting", "caches/forgetting.js", "kv-forgetting kv-live")


def section(scheduler: Scheduler, form: Form) -> None:
    """Draw the form, the map of one design and the quality of all; model and precision are fields of the page."""
    own = Form("forgetting", "g_", budget=Field("25%"), design=Field())
    bar = run_bar("forgetting")
    with bar:
        model = choose_model(st.container(width=260), form, decodable())
        budget = st.container(width=110).selectbox("Tokens kept", **own.choice("budget", BUDGETS))
        with st.popover("Precision", icon=":material/tune:"):
            weights, dtype = choose_precision(form)
            pyramid = st.checkbox("Keep more in lower layers (PyramidKV)", **form.value("pyramid"))
    with errors_said():
        spec = ForgettingSpec(model, budget=budget, weights=weights, dtype=dtype, pyramid=pyramid)
        accepted(scheduler, spec.work())
        seconds = seconds_of(spec, scheduler.device)
        said = f"{len(FORGETTING)} designs read one text at {len(spec.budgets)} budgets"
        said += "." if seconds is None else f": about {lasting(seconds)}."
        show = partial(_draw, own)
        measured(scheduler, spec, show, place=bar, key="g", words=said, progress=_progress, press="Read the text")


def _progress(last: Record) -> tuple[float, str]:
    if last.get("t") != "part":
        return 0.0, "Loading the model …"
    return last["done"] / last["of"], f"{last['title']} reads with {last['budget']} of the tokens …"


def _draw(form: Form, found: Document) -> None:
    found = as_named_here(found)
    titles = {run["mode"]: run["title"] for run in found["runs"]}
    title = st.container()
    if form["design"] not in titles:
        form["design"] = words.first_telling(found["runs"])["mode"]
    options = form.choices("design", list(titles))
    options["label_visibility"] = "collapsed"
    design = st.segmented_control("Design", format_func=titles.__getitem__, required=True, **options)
    run = next(run for run in found["runs"] if run["mode"] == design)
    title.header(words.lost_claim(found, run), anchor="forgotten")
    gloss = f"{run['title']}: {run['gloss']}. " if run["gloss"] else ""
    st.markdown(gloss + TEXTS["caches"]["forgotten"])
    light = {"kept": palette.KEPT, "evicted": palette.GIVEN_UP, "ahead": palette.FREE}
    _map(
        key="forgetting",
        data={
            "name": f"{found['title']} {found['budget']} {design}",
            "run": {
                name: run[name] for name in ("title", "layers", "heads", "gone", "moments", "history", "lost", "scored")
            },
            "pieces": found["pieces"],
            "colours": {name: [colour, palette.ON_DARK.get(colour, colour)] for name, colour in light.items()},
            "assets": ASSETS_URL,
        },
    )

    def at_budget() -> None:
        plot(drawn_once(kl_at_budget, found), key="k_kept")
        st.caption(TEXTS["caches"]["budgets"])

    fold(words.claim(found), "k_at_budget", at_budget)
    each_design(found["runs"])

    def against_bytes() -> None:
        plot(drawn_once(kl_against_bytes, found), key="k_forgetting")

    fold("KL against bytes, at every budget", "k_against", against_bytes)

    def figures() -> None:
        draw_table([_row(found, run) for run in found["runs"]], key="k_forgotten")

    fold("Every design in figures: bytes, KL, perplexity, attention", "k_forgotten_figures", figures)
    tokens = len(found["pieces"])
    st.caption(
        f"{found['title']}, {weights_in_words(found['weights'])}, reads {tokens:,} tokens of the text "
        f"under *Quality lost*; designs keep {tokens_of(found['budget'], tokens)} of them in each KV head. "
        f"{plain(found['note'])}"
    )


def _row(found: Document, run: Document) -> dict[str, object]:
    one = run["budgets"][found["budget"]]
    return {
        "Design": run["title"],
        "Held": human(one["nbytes"]),
        "KL, nats": f"{words.kl_of(run, found['budget']):.2g}",
        "Perplexity": f"{one['perplexity']:.4g}",
        "Attention lost": f"{words.lost_of(run):.0%}",
    }
