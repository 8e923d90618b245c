"""The serving page's first section: requests decoded together by a real engine, under policies below one another."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

import streamlit as st

from kvviz.charts import palette
from kvviz.charts.memory_map import STATES
from kvviz.experiments.batching.policies import POLICIES
from kvviz.experiments.batching.spec import BatchingSpec
from kvviz.experiments.batching.trace import draw_trace
from kvviz.experiments.batching.words import all_answered, claim, mark
from kvviz.experiments.comparison.figures import tail
from kvviz.server.jobs import Job
from kvviz.server.scheduler import Scheduler
from kvviz.ui.folders import ASSETS_URL
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.serving.form import LOADS, MEMORIES, times_of, whose
from kvviz.ui.shared.component import component
from kvviz.ui.shared.experiment import Document, measured, run_bar
from kvviz.ui.shared.fold import fold
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.model_choice import accepted
from kvviz.ui.shared.plain import errors_said
from kvviz.ui.shared.plots import shades
from kvviz.ui.shared.tables import draw_table, localized

REQUESTS, LONGEST, PLACES, SHARED, SEED = 24, 192, 6, 16, 5
RUNNING = "As it runs: the same requests under one policy after another"
KINDS = {  # what a request does, in words and as a colour
    "waiting": ("waiting", palette.FREE),
    "prefill": ("prefill", palette.NEW),
    "decode": ("decode", palette.KEPT),
    "preempted": ("preempted", palette.GIVEN_UP),
    "again": ("computed again", palette.AGAIN),
}

_view = component("kvviz_serving", "serving/serving.js", "kv-serving kv-live")


def batching_spec(model: str, load: int = 80, memory: int = 512) -> BatchingSpec:
    """What the section asks for: the same requests at each visit, `load` a second, in so many slots."""
    trace = draw_trace(REQUESTS, load, LONGEST, seed=SEED)
    columns = (trace.arrivals_s, trace.prompts, trace.answers)
    return BatchingSpec(model, *columns, places=PLACES, slots=memory, shared=SHARED)


def section(scheduler: Scheduler, form: Form) -> None:
    """Draw the form, the run as it goes on or what is kept of one, and what it shows."""
    st.markdown(TEXTS["serving"]["batching_what"])
    bar, asked, shown = run_bar("batching"), st.container(), st.container()
    with bar:
        load = st.select_slider("Requests a second", LOADS, width=160, **form.value("load"))
        slot = "A slot holds the keys and values of one token."
        memory = st.select_slider("Memory, in token slots", MEMORIES, width=190, help=slot, **form.value("memory"))
    documents: list[Document] = []
    with asked, errors_said():
        spec = batching_spec(form["model"], load, memory)
        accepted(scheduler, spec.work())
        job = measured(scheduler, spec, documents.append, place=bar, key="vb", press="Serve them")
        with shown:
            st.header(claim(documents[0]["rows"]) if documents else RUNNING, anchor="continuous-batching")
            draw_run(job, kept=BatchingSpec.kind)
            if documents and (said := all_answered(documents[0]["rows"])):
                st.markdown(said)
            most = f"at most {PLACES} at once, fewer if they fill the memory"
            served = f"{REQUESTS} requests, {most}; all begin with the same {SHARED} tokens"
            all_figures(documents, served, kept=BatchingSpec.kind)


def draw_run(job: Job | None, *, kept: str, titles: Mapping[str, str] = MappingProxyType({})) -> None:
    """Draw what the feed tells of a job, or the recording `kept`, under what to look at.

    `titles` are those of policies that have others here.
    """
    st.markdown(TEXTS["serving"][f"{kept}_run"])
    _view(
        key=f"v_{kept}",
        data={
            "assets": ASSETS_URL,
            "kept": f"{ASSETS_URL}/recordings/{kept}.json.gz",
            "job": job and job.id,
            "titles": {name: policy.title for name, policy in POLICIES.items()} | dict(titles),
            "kinds": {kind: [words, *shades((kind, colour))[kind]] for kind, (words, colour) in KINDS.items()},
            "blocks": STATES,
            "requests": palette.REQUESTS,
            "summaries": {
                name: f"{policy.summary[:1].upper()}{policy.summary[1:]}." for name, policy in POLICIES.items()
            },
            "waits": kept == BatchingSpec.kind,
        },
    )


def all_figures(documents: list[Document], served: str, *, kept: str) -> None:
    """Draw the table and the sentences of what was measured, and say of which requests: `served`."""
    for found in documents:
        if any(map(mark, found["rows"])):
            st.caption(TEXTS["serving"]["about"])
        fold("Every policy in figures and sentences", f"v_{kept}_figures", partial(_figures, found, kept))
        st.caption(f"{served}. {whose(found)}; each policy was measured once. {found['note']}")


def _figures(found: Document, kept: str) -> None:
    called = tail(*(row["done"] for row in found["rows"]))
    draw_table([_row(row, called) for row in found["rows"]], key=f"v_{kept}_all", columns=localized(*_COUNTS))
    st.markdown("\n".join(f"- {sentence}" for sentence in found["sentences"]))


_COUNTS = {
    "Cache hits": "hit_tokens",
    "Preempted": "preempted",
    "Computed again": "recomputed_tokens",
    "Blocks copied out": "swapped_out_blocks",
    "Blocks copied back": "swapped_in_blocks",
    "Starved": "starved",
}
_PAUSES = {
    "ITL p50": "itl_s_p50",
    "ITL p99": "itl_s_p99",
}


def _row(row: Document, called: str) -> dict[str, object]:
    rate = f"{mark(row)}{row['tokens_per_s']:,.0f}" if row["tokens_per_s"] else "–"
    counts = {head: row[name] for head, name in _COUNTS.items()}
    same = "yes" if row["identical"] else "no"
    times = times_of(row, {"TTFT p50": "ttft_s_p50", f"TTFT {called}": "ttft_s_p99", **_PAUSES})
    return {"Policy": row["title"], "Tokens/s": rate, **times, **counts, "Same tokens": same}
