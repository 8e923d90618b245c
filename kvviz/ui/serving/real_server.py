"""The serving page's last section: a server that runs elsewhere, under more and more requests at once."""

import streamlit as st

from kvviz.base.words import millis
from kvviz.charts.block_map import block_map, blocks_over_time, claim_of_blocks
from kvviz.charts.endpoint import tokens_by_level, waits_by_level
from kvviz.experiments.comparison.endpoint_words import lying
from kvviz.experiments.concurrency.spec import ConcurrencySpec
from kvviz.experiments.concurrency.words import claim
from kvviz.experiments.kind import Record
from kvviz.server.scheduler import Scheduler
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.serving.form import PIECES, STREAMS, progress
from kvviz.ui.shared.endpoint_fields import endpoint_fields
from kvviz.ui.shared.experiment import Document, measured, run_bar
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.plain import errors_said
from kvviz.ui.shared.plots import plot
from kvviz.ui.shared.tables import draw_table

REQUESTS = 3
PRESS = "Ask it"
_WAITS = (("ttft_s", "First token (TTFT)"), ("itl_s", "Between two pieces of text (ITL)"))


def section(scheduler: Scheduler, form: Form) -> None:
    """Draw the form, the measurement and what it shows."""
    texts = TEXTS["serving"]
    st.markdown(texts["real_server"])
    secret = endpoint_fields(form, "v_")
    bar = run_bar()
    most_streams, most_tokens = scheduler.limits.batch, scheduler.limits.new_tokens
    with bar:
        streams = [count for count in STREAMS if count <= most_streams] or STREAMS[:1]
        pieces = [count for count in PIECES if count <= most_tokens] or PIECES[:1]
        form["streams"], form["pieces"] = min(form["streams"], streams[-1]), min(form["pieces"], pieces[-1])
        most = st.select_slider("Most requests at once", streams, width=240, **form.value("streams"))
        tokens = st.select_slider("Tokens of each", pieces, width=240, **form.value("pieces"))
    with errors_said():
        if not form["endpoint"].strip():
            bar.button(PRESS, type="primary", disabled=True)
            st.caption(texts["real_server_example"])
            return
        levels = tuple(2**power for power in range(most.bit_length()))
        model = form["endpoint_model"].strip() or None
        events = form["kv_events"].strip() or None
        spec = ConcurrencySpec(form["endpoint"].strip(), model, levels, REQUESTS, new_tokens=tokens, kv_events=events)
        words = f"Up to {most} at once; each asker sends {REQUESTS} requests, one after another, of {tokens} tokens."
        shown = {"words": words, "press": PRESS}
        measured(
            scheduler, spec, _draw, place=bar, key="ve", progress=progress, live=_draw_live, secret=secret, **shown
        )


def _draw(found: Document) -> None:
    st.header(claim(found), anchor="real-server")
    plot(tokens_by_level(found["rows"]), key="ve_tokens", claim="Tokens a second, of all requests together")
    for place, (name, title) in zip(st.columns(2, gap="large"), _WAITS, strict=True):
        place.markdown(f"**{title}**")
        plot(waits_by_level(found["rows"], name), place, key=f"ve_{name}")
    st.caption(TEXTS["serving"]["real_server_curve"])
    if found.get("kv_events"):
        _draw_blocks(found["kv_events"])
    with st.expander("All figures, and what they say in sentences"):
        draw_table([_row(row) for row in found["rows"]], key="ve_table")
        st.markdown("\n".join(f"- {sentence}" for sentence in found["sentences"][1:]))
    st.caption(found["sentences"][0])


def _draw_live(last: Record) -> None:
    """Draw the blocks as the KV events so far have told of them."""
    if last.get("kv_events"):
        st.caption(lying(last["kv_events"]))
        st.html(block_map(last["kv_events"]))


def _draw_blocks(told: Document) -> None:
    st.header("Its blocks, by its KV events", anchor="kv-events")
    if told["batches"]:
        plot(blocks_over_time(told), key="ve_blocks", claim=claim_of_blocks(told))
        st.html(block_map(told))
    st.caption(TEXTS["serving"]["real_server_blocks"])


def _row(row: Document) -> dict[str, object]:
    waits = {
        f"{head} {rank}": millis(found) if (found := row[f"{name}_{rank}"]) is not None else "–"
        for name, head in (("ttft_s", "First token"), ("itl_s", "ITL"))
        for rank in ("p50", "p99")
    }
    used = "–" if row["cache_usage"] is None else f"{row['cache_usage']:.1%}"
    counts = {"Answered": row["requests"], "Failed": row["failed"]}
    return {"At once": row["concurrency"], "Tokens/s": f"{row['tokens_per_s']:,.4g}", **waits, **counts, "Cache": used}
