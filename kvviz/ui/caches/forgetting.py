"""What designs that evict forget of a text: the map of kept and evicted tokens, and quality against bytes."""

from functools import partial

import streamlit as st

from kvviz.base.words import human, lasting
from kvviz.caches.designs import DESIGNS, tokens_of
from kvviz.charts import palette
from kvviz.charts.forgetting import kl_against_bytes
from kvviz.experiments.eta import seconds_of
from kvviz.experiments.forgetting import words
from kvviz.experiments.forgetting.spec import BUDGETS, FORGETTING, ForgettingSpec
from kvviz.experiments.kind import Record
from kvviz.server.scheduler import Scheduler
from kvviz.ui.caches.form import said_setting
from kvviz.ui.folders import ASSETS_URL
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.component import component
from kvviz.ui.shared.experiment import Document, measured, run_bar
from kvviz.ui.shared.form import Field, Form
from kvviz.ui.shared.model_choice import accepted
from kvviz.ui.shared.plain import errors_said, plain
from kvviz.ui.shared.plots import colour_key, plot, shades
from kvviz.ui.shared.tables import draw_table

KEY = (
    ("kept, the stronger by the more heads", palette.KEPT),
    ("evicted just now; it fades", palette.GIVEN_UP),
)
FADED = {"evicted longer ago": ("#E5E2EA", "#353743")}  # as the map mixes it

_map = component("kvviz_forgetting", "caches/forgetting.js", "kv-forgetting kv-live")


def forgetting(scheduler: Scheduler, race: Document) -> None:
    """Draw the form, the map of one design and the quality of all; the model is that of the race."""
    form = Form("forgetting", "g_", budget=Field("25%"), design=Field())
    bar = run_bar()
    budget = bar.segmented_control("Budget", required=True, **form.choices("budget", BUDGETS))
    asked = race["spec"]
    with errors_said():
        spec = ForgettingSpec(
            asked["model"],
            budget=budget,
            weights=asked["weights"],
            dtype=asked["dtype"],
            pyramid=asked.get("pyramid", False),
        )
        accepted(scheduler, spec.work())
        seconds = seconds_of(spec, scheduler.device)
        said = f"{len(FORGETTING)} designs read one text at {len(spec.budgets)} budgets"
        said += "." if seconds is None else f": about {lasting(seconds)}."
        show = partial(_draw, form)
        measured(scheduler, spec, show, place=bar, key="g", words=said, progress=_progress, press="Read the text")


def _progress(last: Record) -> tuple[float, str]:
    if last.get("t") != "part":
        return 0.0, "Loading the model …"
    return last["done"] / last["of"], f"{last['title']} reads with {last['budget']} of the tokens …"


def _draw(form: Form, found: Document) -> None:
    titles = {run["mode"]: run["title"] for run in found["runs"]}
    tokens = len(found["pieces"])
    kept = f"{tokens_of(found['budget'], tokens)} ({found['budget']})"
    said_setting("forgotten", title=found["title"], read=f"{tokens:,}", budget=kept)
    title = st.container()
    if form["design"] not in titles:
        form["design"] = words.best(found)["mode"]
    options = form.choices("design", list(titles))
    design = st.segmented_control("Design", format_func=titles.__getitem__, required=True, **options)
    run = next(run for run in found["runs"] if run["mode"] == design)
    title.header(words.lost_claim(found, run), anchor="forgotten")
    st.caption(f"“{run['title']}”: {TEXTS['caches']['why'].get(design, DESIGNS[design].summary)}")
    colour_key(shades(*KEY) | FADED)
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
    st.caption(TEXTS["caches"]["forgotten"])
    st.header(words.claim(found), anchor="loss")
    left, right = st.columns([3, 2], gap="large")
    plot(kl_against_bytes(found), left, key="k_forgetting")
    draw_table([_row(found, run) for run in found["runs"]], place=right, key="k_forgotten")
    right.markdown(TEXTS["caches"]["budgets"])
    st.caption(f"{found['title']}, {found['weights']} weights, {len(found['pieces']):,} tokens. {plain(found['note'])}")


def _row(found: Document, run: Document) -> dict[str, object]:
    one = run["budgets"][found["budget"]]
    return {
        "Design": run["title"],
        "Held": human(one["nbytes"]),
        "KL, nats": f"{words.kl_of(run, found['budget']):.2g}",
        "Perplexity": f"{one['perplexity']:.4g}",
        "Attention lost": f"{words.lost_of(run):.0%}",
    }
