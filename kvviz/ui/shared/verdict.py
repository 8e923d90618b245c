"""The verdict on a comparison: what bounds it, the fitted curves typeset, where the cache starts to pay."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import streamlit as st

from kvviz.base.hashing import data_digest
from kvviz.base.words import brief
from kvviz.charts.block_map import block_map, blocks_over_time, claim_of_blocks
from kvviz.charts.endpoint import cache_in_use, claim_of_use
from kvviz.decoding.modes import MODES
from kvviz.experiments.comparison.endpoint_words import in_use
from kvviz.experiments.comparison.speculated import formula_explained, speedup_formula
from kvviz.experiments.comparison.verdict import OFF, equation, judge
from kvviz.experiments.shapes import FLAT
from kvviz.server.scheduler import Scheduler
from kvviz.store.db.stored import Run
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.experiment import Document
from kvviz.ui.shared.fold import fold
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.plots import plot

LONGEST = 3_000  # characters of what is said of an endpoint
FIGURES = (
    "mode",
    "step_s",
    "speedup",
    "speedup_interval",
    "estimate",
    "predicted_s",
    "prediction_error",
    "prediction_bias",
    "passes",
    "accepted",
    "drafted",
    "steps",
    "tried",
    "verified",
    "usual_s",
    "exact",
    "ttft_s",
    "itl_s",
    "itl_mean_s",
    "itl_p99_s",
    "identical",
    "first_divergence",
    "arrivals_s",
    "tokens_per_chunk",
    "engine",
    "metrics",
    "kv_events",
)


def of_live(scheduler: Scheduler, watched: str | None) -> None:
    """Draw the verdict on the comparison that the page shows, once it is over."""
    job = scheduler.shown(watched)
    if job is not None and job.document:
        _judge_and_show(job.document.get("prompt_tokens"), job.document["runs"])


def of_runs(runs: Sequence[Run]) -> None:
    """Draw the verdict on the picked runs of the first one's comparison: only those did the same work."""
    first = runs[0].comparison
    alike = [run for run in runs if run.comparison.id == first.id]
    _judge_and_show(first.prompt_tokens, [run.figures for run in alike])
    if len(alike) < len(runs):
        st.caption(f"This is of {len(alike)} of the {len(runs)} picked runs: those of the first one's comparison.")


def _judge_and_show(prompt_tokens: int | None, runs: Sequence[Document]) -> None:
    kept = [{name: run.get(name) for name in FIGURES} for run in runs]
    found = _judged(data_digest((prompt_tokens, kept)), prompt_tokens, kept)
    st.header("What the curves say")
    st.markdown("\n".join(f"- {line}" for line in _lines(found)))
    for run in kept:
        if len(used := in_use(run.get("metrics") or {})) > 1:
            plot(cache_in_use(used), claim=claim_of_use(used), key="endpoint_use")
        if (told := run.get("kv_events")) and told["batches"]:
            plot(blocks_over_time(told), claim=claim_of_blocks(told), key="endpoint_blocks")
            st.html(block_map(told))
    if found["advice"]:
        st.info(found["advice"], icon=":material/lightbulb:")
    words = "The curves as formulas, what was predicted, and where a step's time goes"
    fold(words, "verdict_formulas", partial(_formulas, found))


def _formulas(found: Document) -> None:
    for entry in found["modes"]:
        formula = equation(entry, "line" if entry["line"] else "fit")
        if formula is not None:
            st.latex(formula)
        elif entry["mode"] in MODES:
            st.caption(f"{MODES[entry['mode']].title}: {plain('; '.join(entry['untold']))}.")
    if any(entry["fit"] for entry in found["modes"]):
        st.caption(TEXTS["live"]["fitted"])
    if any(entry["line"] for entry in found["modes"]):
        st.caption(TEXTS["live"]["no_square"])
    for entry in found["expected"]:
        st.latex(speedup_formula(entry))
        st.caption(formula_explained(entry))
    for said in filter(None, [found["prediction"], found["sentence"]]):
        st.markdown(said)


def _lines(found: Document) -> list[str]:
    """What matters most, first: the pace of each mode, and from where on the cache pays."""
    lines = [_pace(entry) for entry in found["modes"] if entry["mode"] in MODES and entry["measured_s"]]
    if found["crossover"] is not None:
        words = found["crossover"]["sentence"]
        lines.append(f"{words[:1].upper()}{words[1:]}.")
    served = list[str]()
    for title, name in ((MODES["endpoint"].title, "endpoint"), ("Its cache", "endpoint_cache")):
        served += [f"**{title}**: {plain(words, LONGEST)}" for words in found[name]]
    return [*lines, *found["speculation"], *served]


def _pace(entry: Document) -> str:
    """The median step of a mode, what it mostly is by a prediction that came near, what more context adds to it."""
    measured, predicted = entry["measured_s"], entry["estimate_s"]
    near = predicted and 1 / OFF <= measured / predicted <= OFF
    because = f"; predicted from the counted work: {entry['bound']}" if near else ""
    typical = f"{entry['mark']}{brief(measured, 2 if entry['mark'] else 3)}"
    return f"**{MODES[entry['mode']].title}**: {typical} for a median step{because}{_slope(entry)}."


def _slope(entry: Document) -> str:
    """What each further token of context adds to a step: of a straight line all along it, of a square on average.

    Nothing is said of a run that other work disturbed: the work may have changed along the run, too.
    """
    curve = entry["line"] or entry["fit"]
    if curve is None or entry["mark"]:
        return ""
    slope, square, which = curve["b_s_per_token"], curve.get("c_s_per_token2"), ""
    tokens = f"{curve['last_token'] - curve['first_token']:,.0f} tokens of context"
    flat = f"; flat, less than {FLAT:.0%} over {tokens}" if entry["shape"] == "flat" else ""
    if square is None and not slope["told"]:
        return flat or "; whether it grows with the context can't be told from these steps"
    adds = slope["value"]
    if square is None and adds < 0 and not flat:
        return f"; it fell by {-adds * 1e6:.3g} µs with each token, so more than the context has changed"
    if square is not None:
        bend = square["value"] * (curve["first_token"] + curve["last_token"])
        adds, which = adds + bend, f" on average, {'later' if bend > 0 else 'earlier'} ones more"
    return f"; each further token of context adds {adds * 1e6:.3g} µs{which}{flat}"


@st.cache_data(max_entries=64, show_spinner=False)
def _judged(digest: bytes, _prompt_tokens: int | None, _runs: Sequence[Document]) -> dict[str, Any]:
    """Judge each comparison once: a script run of a viewer should not fit its curves again."""
    return judge(_prompt_tokens, _runs)
