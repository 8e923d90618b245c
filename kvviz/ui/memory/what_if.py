"""The same model with another idea for its cache: what each saves."""

from dataclasses import replace

import streamlit as st

from kvviz.base.words import human, ratio
from kvviz.memory.calculator import Answer, Asked, memory_of
from kvviz.memory.what_if import Idea, as_it_is, ideas, with_kv_heads
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.plain import errors_said
from kvviz.ui.shared.tables import COUNTS, draw_table, exact


def what_if(main: Answer, asked: Asked) -> None:
    """Draw a row for each idea."""
    if main.memory is None or main.spec is None:
        return
    now = memory_of(main.spec, replace(asked, tensor_parallel=1))
    same = Idea(as_it_is(main.spec), "Nothing.", now, 1.0, 0)
    rows = [_row(idea) for idea in (same, *ideas(main.spec, main.memory))]
    draw_table(rows, columns=COUNTS, key="m_ideas")
    st.caption(TEXTS["memory"]["ideas"])
    _grouped(main, asked)


def _row(idea: Idea) -> dict[str, object]:
    return {
        "idea": idea.name,
        "what changes": idea.sentence,
        "total": human(idea.memory.reserved_bytes),
        "bytes": exact(idea.memory.reserved_bytes),
        "more or less": f"{'−' if idea.saved > 0 else '+'}{human(abs(idea.saved))}" if idea.saved else "",
        "as a factor": f"{ratio(idea.factor)}×",
    }


def _grouped(main: Answer, asked: Asked) -> None:
    """Draw grouped-query attention with any number of groups that the query heads divide into."""
    spec, memory = main.spec, main.memory
    heads = spec.heads if spec else None
    if spec is None or memory is None or not heads or heads < 2 or not any(row.kv_heads for row in memory.layers):
        return
    groups = [count for count in range(1, heads + 1) if heads % count == 0]
    own = max(row.kv_heads for row in memory.layers)
    start = own if own in groups else groups[-1]
    chosen = st.select_slider("KV heads for all layers", groups, value=start, key=f"m_groups_{main.key}")
    with errors_said():
        other = memory_of(with_kv_heads(spec, chosen), asked)
        kind = {1: "multi-query", heads: "multi-head"}.get(chosen, f"grouped-query, {heads // chosen} to a group")
        st.markdown(
            f"{heads} query heads on **{chosen}** KV heads ({kind}): **{human(other.reserved_bytes)}**, "
            f"{ratio(other.reserved_bytes / memory.reserved_bytes)}× of what the model keeps as it is."
        )
