"""The serving page's fifth section: a system prompt that requests share, cold against warm."""

import streamlit as st

from kvviz.base.words import human, millis
from kvviz.caches.block_table import BLOCK
from kvviz.charts import claims
from kvviz.charts.first_tokens import STYLE, first_tokens
from kvviz.experiments.serving.spec import ASKS, MOST_ASKS, SharingSpec
from kvviz.experiments.serving.words import little_saved
from kvviz.server.scheduler import Scheduler
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.serving.form import expected, progress, where
from kvviz.ui.shared.experiment import Document, measured, run_bar
from kvviz.ui.shared.fold import fold
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.model_choice import choose_model, small_models
from kvviz.ui.shared.plain import errors_said
from kvviz.ui.shared.tables import draw_table


def section(scheduler: Scheduler, form: Form) -> None:
    """Draw the form, the measurement and what it shows."""
    st.markdown(TEXTS["serving"]["sharing"])
    bar = run_bar("shared_prompt")
    with bar:
        model = choose_model(st.container(width=260), form, small_models("prefix"))
        most = max(2, min(MOST_ASKS, scheduler.limits.batch))
        form["asks"] = min(most, form["asks"])
        asks = st.slider("Requests that share it", width=240, **form.within("asks", 2, MOST_ASKS))
        with st.popover("The system prompt", icon=":material/notes:"):
            system = st.text_area("System prompt", height=200, width=480, **form.value("system"))
    with errors_said():
        spec = SharingSpec(model, system, ASKS[: min(asks, most)], repeats=min(5, scheduler.limits.repeats))
        words = expected(scheduler, spec)
        measured(scheduler, spec, _draw, place=bar, key="vs", words=words, progress=progress)


def _draw(found: Document) -> None:
    rows = found["requests"]
    names = [f"Request {number}" for number in range(1, len(rows) + 1)]
    st.header(claims.of_shared_prompt(rows), anchor="prefix-sharing")
    st.html(STYLE + first_tokens(rows, [(name, row["ask"]) for name, row in zip(names, rows, strict=True)]))
    st.markdown(f"{TEXTS['serving']['shared_cache']} {TEXTS['serving']['spread_of_rounds']}")
    if sentence := little_saved(rows):
        st.info(sentence)

    def figures() -> None:
        draw_table([_row(name, row) for name, row in zip(names, rows, strict=True)], key="v_shared_table")
        st.markdown("\n".join(f"- {sentence}" for sentence in found["sentences"]))
        st.markdown("A cache hit is made of whole blocks: of a prefix that is the same for *s* tokens,")
        alike = found["alike_tokens"]
        st.latex(
            rf"{BLOCK} \cdot \left\lfloor \frac{{s}}{{{BLOCK}}} \right\rfloor = {BLOCK} \cdot \left\lfloor "
            rf"\frac{{{alike}}}{{{BLOCK}}} \right\rfloor = {alike // BLOCK * BLOCK}\ \text{{tokens}}"
        )

    fold("All figures, and what they say in sentences", "v_shared_figures", figures)
    where(found)


def _row(name: str, row: Document) -> dict[str, object]:
    return {
        "": name,
        "Asked": row["ask"],
        "Tokens": row["prompt_tokens"],
        "Computed, warm": row["warm"]["computed_tokens"],
        "TTFT, cold": millis(row["cold"]["ttft_s"]),
        "TTFT, warm": millis(row["warm"]["ttft_s"]),
        "Cache": human(row["warm"]["cache_bytes"]),
        "Of it shared": human(row["warm"]["found_bytes"]),
        "Same tokens": "yes" if row["identical"] else "no",
    }
