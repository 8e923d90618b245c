"""The serving page's sixth section: two conversations, and the tree of prefixes that they leave."""

import html
from textwrap import shorten

import streamlit as st

from kvviz.charts import claims
from kvviz.charts.prefix_tree import KEY, STYLE, costs, prefix_tree
from kvviz.experiments.serving.spec import PrefixesSpec
from kvviz.experiments.serving.words import new_boxes
from kvviz.server.scheduler import Scheduler
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.serving.form import PERCENTS, expected, progress, whose
from kvviz.ui.shared.experiment import Document, measured, run_bar
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.plain import errors_said
from kvviz.ui.shared.tables import draw_table, localized


def section(scheduler: Scheduler, form: Form) -> None:
    """Draw the form, the run and what it shows."""
    st.markdown(TEXTS["serving"]["prefixes"])
    bar = run_bar()
    with bar:
        percent = st.select_slider("Memory, % of what all would take", PERCENTS, width=280, **form.value("percent"))
    with errors_said():
        spec = PrefixesSpec(form["model"], percent=percent)
        words = expected(scheduler, spec)
        measured(scheduler, spec, _draw, place=bar, key="vp", words=words, progress=progress, press="Serve them")


def _draw(found: Document) -> None:
    st.header(claims.of_evictions(found), anchor="prefix-tree")
    st.fragment(_moment)(found)
    with st.expander("How to read the trees, and when the other order is right"):
        st.markdown(TEXTS["serving"]["prefix_trees"])
    with st.expander("All figures, and what they say in sentences"):
        rows = [_row(row) for row in found["rows"]]
        draw_table(rows, key="v_prefixes_table", columns=localized(*_COUNTS))
        st.markdown("\n".join(f"- {sentence}" for sentence in found["sentences"]))
    same = "the same tokens" if found["identical"] else "not the same tokens"
    room = f"{found['blocks']:,} of the {found['needed_blocks']:,} blocks that all would take"
    st.caption(f"{whose(found)}; the memory has {room}; {same} under both orders. {found['note']}")


def _moment(found: Document) -> None:
    """Draw the trees after one request, of each order of eviction."""
    requests = found["rows"][0]["requests"]
    who = [one["who"] for one in requests]
    names = [f"{name}{who[: place + 1].count(name)}" for place, name in enumerate(who)]
    bar = st.container(horizontal=True, vertical_alignment="bottom", gap="medium")
    chosen = bar.segmented_control("After request", names, default=names[-1], key="v_after", width="content")
    number = names.index(chosen or names[-1])
    asked = requests[number]
    ask = html.escape(shorten(asked["ask"], 120, placeholder=" …"))
    bar.html(f"<b>{names[number]}</b> asks “{ask}”: {asked['prompt_tokens']:,} tokens with all that came before")
    st.html(STYLE + costs(found["rows"], names, number))
    st.html(KEY)
    for row in found["rows"]:
        one = row["requests"][number]
        again = f", {one['recomputed_tokens']:,} of them **again**" if one["recomputed_tokens"] else ""
        gone = f"; {one['evicted_blocks']:,} blocks evicted" if one["evicted_blocks"] else ""
        figures = f"{one['hit_tokens']:,} tokens hit, {one['computed_tokens']:,} computed{again}{gone}"
        st.markdown(f"**{row['title']}**: {figures}. {new_boxes(one, found['block'])}")
        st.html(prefix_tree(one["tree"], names, found["block"]))
    st.caption(TEXTS["serving"]["prefix_tree"])


_COUNTS = {
    "Cache hits": "hit_tokens",
    "Computed": "computed_tokens",
    "Of these again": "recomputed_tokens",
    "Blocks evicted": "evicted_blocks",
}


def _row(row: Document) -> dict[str, object]:
    return {"Goes first": row["title"].removesuffix(" first"), **{head: row[name] for head, name in _COUNTS.items()}}
