"""The serving page's second section: a system prompt that requests share, cold against warm."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.base.words import human, millis
from kvviz.caches.block_table import BLOCK
from kvviz.charts.serving import first_token_figure, tokens_figure
from kvviz.experiments.serving.spec import ASKS, MOST_ASKS, SYSTEM, SharingSpec
from kvviz.experiments.serving.words import little_saved
from kvviz.server.scheduler import Scheduler
from kvviz.ui.serving.shared import checked, progress, shareable, where
from kvviz.ui.shared import filled
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.plots import plot
from kvviz.ui.shared.waiting import measured

Found = Mapping[str, Any]


def section(scheduler: Scheduler) -> None:
    """The form, the measurement, what it shows."""
    st.subheader("Prefix sharing", anchor="prefix-sharing")
    st.markdown(
        "Many requests begin with the same system prompt. **Cold**, each computes all of it. **Warm**, it begins with "
        "the blocks that others have left, and only the rest goes through the model."
    )
    with st.container(border=True):
        left, right = st.columns([3, 2], gap="medium")
        st.session_state.setdefault("v_system", SYSTEM)
        system = left.text_area("System prompt", filled.value("v_system"), key="v_system", height=150)
        titles = shareable()
        ids = list(titles)
        at = filled.index("v_model", ids)
        model = right.selectbox("Model", ids, at, format_func=titles.__getitem__, key="v_model")
        most = max(2, min(MOST_ASKS, scheduler.limits.batch))
        st.session_state.v_asks = min(most, st.session_state.v_asks)
        asks = right.slider("Requests that share it", 2, MOST_ASKS, filled.value("v_asks"), key="v_asks")
    try:
        spec = SharingSpec(model, system, ASKS[: min(asks, most)], repeats=min(5, scheduler.limits.repeats))
        words = checked(scheduler, spec)
    except KvvizError as error:
        st.warning(plain(error))
        return
    found = measured(scheduler, spec, key="vs", words=words, progress=progress)
    if found is not None:
        _draw(found)


def _draw(found: Found) -> None:
    rows = found["requests"]
    names = [f"request {number}" for number in range(1, len(rows) + 1)]
    left, right = st.columns(2, gap="large")
    plot(first_token_figure(rows, names), left, key="v_shared_time")
    plot(tokens_figure(rows, names), right, key="v_shared_tokens")
    st.markdown("\n".join(f"- {sentence}" for sentence in found["sentences"]))
    if sentence := little_saved(rows):
        st.info(sentence)
    st.markdown("What is found are whole blocks: of a beginning that is the same for *s* tokens,")
    alike = found["alike_tokens"]
    st.latex(
        rf"{BLOCK} \cdot \left\lfloor \frac{{s}}{{{BLOCK}}} \right\rfloor = {BLOCK} \cdot \left\lfloor "
        rf"\frac{{{alike}}}{{{BLOCK}}} \right\rfloor = {alike // BLOCK * BLOCK}\ \text{{tokens}}"
    )
    st.dataframe(
        [_row(name, row) for name, row in zip(names, rows, strict=True)], hide_index=True, key="v_shared_table"
    )
    st.caption(
        "The first request finds nothing: it is the one that fills the blocks. *Cache* is all that a request holds "
        "when it is done; *of it shared* lay there before it came."
    )
    where(found)


def _row(name: str, row: Found) -> dict[str, Any]:
    return {
        "": name,
        "Asked": row["ask"],
        "Tokens": row["prompt_tokens"],
        "Computed, warm": row["warm"]["computed_tokens"],
        "First token, cold": millis(row["cold"]["ttft_s"]),
        "First token, warm": millis(row["warm"]["ttft_s"]),
        "Cache": human(row["warm"]["cache_bytes"]),
        "Of it shared": human(row["warm"]["found_bytes"]),
        "Same tokens": "yes" if row["identical"] else "no",
    }
