"""The serving page's last section: a server that runs elsewhere, under more and more requests at once."""

from collections.abc import Mapping

import streamlit as st

from kvviz.base.words import millis
from kvviz.charts.block_map import block_map, blocks_over_time, claim_of_blocks
from kvviz.charts.endpoint import (
    claim_of_most_use,
    hits_by_part,
    tokens_by_level,
    use_over_time,
    waits_by_level,
)
from kvviz.experiments.comparison.endpoint_words import lying
from kvviz.experiments.comparison.figures import tail, tail_said
from kvviz.experiments.concurrency.spec import ConcurrencySpec
from kvviz.experiments.concurrency.words import (
    BATCHING,
    asked,
    cause,
    ceiling,
    claim,
    claim_of_hits,
    claim_of_recording,
    claim_of_tokens,
    claim_of_wait,
    hit_rates,
    how_often,
    of_sharing,
    sentences,
    waits_of,
)
from kvviz.experiments.kind import Record
from kvviz.server.scheduler import Scheduler
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.serving.form import PIECES, STREAMS, progress
from kvviz.ui.shared.endpoint_fields import endpoint_fields
from kvviz.ui.shared.experiment import Document, measured, recording, run_bar, say_recorded
from kvviz.ui.shared.fold import fold
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.plain import errors_said, plain
from kvviz.ui.shared.plots import drawn_once, plot
from kvviz.ui.shared.tables import draw_table

REQUESTS = 3
PRESS = "Ask it"
_WAITS = (("ttft_s", "First token"), ("itl_s", "Between two pieces"))


def section(scheduler: Scheduler, form: Form) -> None:
    """Draw the form, the measurement and what it shows."""
    texts = TEXTS["serving"]
    st.markdown(texts["real_server"])
    bar = run_bar("real_server")
    most_streams, most_tokens = scheduler.limits.batch, scheduler.limits.new_tokens
    with bar:
        secret = endpoint_fields(form, "v_")
        streams = [count for count in STREAMS if count <= most_streams] or STREAMS[:1]
        pieces = [count for count in PIECES if count <= most_tokens] or PIECES[:1]
        form["streams"], form["pieces"] = min(form["streams"], streams[-1]), min(form["pieces"], pieces[-1])
        most = st.select_slider("Most requests at once", streams, width=200, **form.value("streams"))
        tokens = st.select_slider("Tokens of each", pieces, width=200, **form.value("pieces"))
    with errors_said():
        if not form["endpoint"].strip():
            bar.button(PRESS, type="primary", disabled=True)
            kept = recording(ConcurrencySpec.kind)
            if kept:
                say_recorded(f"{_recorded(kept)} {texts['real_server_example']}", "real_server")
                _draw(kept["document"], kept=True)
            how = "How to start a server: vLLM, SGLang, llama.cpp, transformers, Ollama"
            fold(how, "ve_start", lambda: st.markdown(texts["real_server_start"]))
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


def _recorded(kept: Record) -> str:
    """Say of which server, where and when the kept recording was made."""
    found = kept["document"]
    where = plain(found["environment"]["device_name"])
    return f"This is a **recording** of {found['title']} ({where}), made on {kept['made']}."


def _draw(found: Document, kept: bool = False) -> None:
    """Draw the curves; of a kept recording say on what it was made and how far it holds."""
    st.header(claim_of_recording(found) if kept else claim(found), anchor="real-server")
    if kept:
        st.markdown(TEXTS["serving"]["real_server_recorded"])
    left, right = st.columns(2, gap="large")
    plot(drawn_once(tokens_by_level, found["rows"]), left, key="ve_tokens", claim=claim_of_tokens(found))
    name, title = _WAITS[0]
    waited = drawn_once(waits_by_level, found["rows"], name, title)
    plot(waited, right, key=f"ve_{name}", claim=claim_of_wait(found, f"{name}_p50", title))
    st.markdown(f"{asked(found)} {tail_said(*(row['requests'] for row in found['rows']))}.")
    waits = TEXTS["serving"]["real_server_waits"] if kept else ""
    st.markdown(" ".join(filter(None, [f"**{ceiling(found)}**", of_sharing(found), waits])))
    st.caption(f"{how_often(found)} {BATCHING.get(found['engine']['name'], '')}")

    def cause_of_it() -> None:
        if said := cause(found):
            st.markdown(f"**{said}**")
        plot(
            drawn_once(tokens_by_level, found["rows"], found.get("alike")), key="ve_alike", claim=claim_of_tokens(found)
        )
        st.markdown(TEXTS["serving"]["real_server_curve"])

    fold("What the time went into: the same requests with prompts that begin alike", "ve_cause", cause_of_it)
    fold("What the server reports about its cache", "ve_cache", lambda: _draw_cache(found))
    if found.get("kv_events"):
        _draw_blocks(found["kv_events"])

    def figures() -> None:
        name, title = _WAITS[1]
        waited = drawn_once(waits_by_level, found["rows"], name, title)
        plot(waited, key=f"ve_{name}", claim=claim_of_wait(found, f"{name}_p50", title))
        called = {name: tail(*(waits_of(row, name) for row in found["rows"])) for name, _ in _WAITS}
        draw_table([_row(row, called) for row in found["rows"]], key="ve_table")
        st.markdown("\n".join(f"- {plain(sentence)}" for sentence in sentences(found)))

    fold("The time between two pieces of an answer, all figures, and what they say in sentences", "ve_figures", figures)


def _draw_cache(found: Document) -> None:
    """Draw what the server's metrics told of its cache meanwhile: how much was in use, and what prompts found in it."""
    looks = found["looks"]
    rates = hit_rates(found)
    used, hits = any(look["used_share"] is not None for look in looks), any(rate is not None for rate in rates)
    if not used and not hits:
        st.caption(TEXTS["serving"]["real_server_silent"])
        return
    places = iter(st.columns(2, gap="medium"))
    if used:
        plot(drawn_once(use_over_time, looks), next(places), key="ve_use", claim=claim_of_most_use(looks))
    if hits:
        said = claim_of_hits(found) or "What prompts found in its prefix cache"
        plot(drawn_once(hits_by_part, found["rows"], rates), next(places), key="ve_hits", claim=said)
    st.caption(TEXTS["serving"]["real_server_cache"])


def _draw_live(last: Record) -> None:
    """Draw the blocks as the KV events so far have told of them."""
    if last.get("kv_events"):
        st.caption(lying(last["kv_events"]))
        st.html(block_map(last["kv_events"]))


def _draw_blocks(told: Document) -> None:
    st.header("Its blocks, by its KV events", anchor="kv-events")
    if told["batches"]:
        plot(drawn_once(blocks_over_time, told), key="ve_blocks", claim=claim_of_blocks(told))
        st.html(block_map(told))
    st.caption(TEXTS["serving"]["real_server_blocks"])


def _row(row: Document, called: Mapping[str, str]) -> dict[str, object]:
    waits = {
        f"{head} {said}": millis(found) if (found := row[f"{name}_{rank}"]) is not None else "–"
        for name, head in (("ttft_s", "TTFT"), ("itl_s", "ITL"))
        for rank, said in (("p50", "p50"), ("p99", called[name]))
    }
    used = "–" if row["cache_usage"] is None else f"{row['cache_usage']:.1%}"
    counts = {"Answered": row["requests"], "Failed": row["failed"]}
    return {"At once": row["concurrency"], "Tokens/s": f"{row['tokens_per_s']:,.4g}", **waits, **counts, "Cache": used}
