"""What the formula agrees with: published figures, the accounts of the model that ran last, an engine's own log."""

import json
from functools import lru_cache

import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from kvviz.memory.calculator import Answer, Asked
from kvviz.memory.check_engine_log import judge
from kvviz.memory.engine_log import parse
from kvviz.memory.formula import kv_memory
from kvviz.models.catalog.rows import Reference, references
from kvviz.models.spec import ModelSpec
from kvviz.server.scheduler import Scheduler
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.memory.links import sources
from kvviz.ui.shared.plain import errors_said, plain
from kvviz.ui.shared.tables import draw_table

BY_HAND = "arithmetic on the published config"  # the method of a figure whose source prints no bytes
_PRINTED = "printed or by hand"
_WIDTHS = {"what": 248, "counted as": 128, _PRINTED: 304, "agrees": 108}  # pixels: all fit a page 1280 wide
_COLUMNS: dict[str, ColumnConfig] = {
    **{name: st.column_config.Column(width=width) for name, width in _WIDTHS.items()},
    "tokens": st.column_config.NumberColumn(format="localized", width=72),
    "kvviz, B": st.column_config.NumberColumn(format="localized", width=112),
    "source": sources(148),
}


def how_we_know(scheduler: Scheduler) -> None:
    """Draw the three accounts, and a row for each published figure."""
    _three_accounts(scheduler)
    st.header("Published figures, recomputed as you look")
    figures = [
        (row, _recomputed(json.dumps(row.model_config), row.tokens, row.batch, row.dtype, row.view))
        for row in references()
    ]
    slips = [row for row, _ in figures if row.slip]
    agree = sum(row.agrees(ours) and not row.slip for row, ours in figures)
    said = f"agree within the rounding of what is printed; in {len(slips)} the source slips."
    st.markdown(f"**{agree} of {len(figures)}** {said} {TEXTS['memory']['by_hand']}")
    draw_table([_row(*each) for each in figures], height=420, columns=_COLUMNS, key="m_references")
    with st.expander(f"Where {len(slips)} sources slip"):
        st.markdown("\n".join(f"- {row.title}: {row.slip}" for row in slips))


@lru_cache(maxsize=512)
def _recomputed(config: str, tokens: int, batch: int, dtype: str, view: str) -> int:
    spec = ModelSpec.from_config(json.loads(config))
    return kv_memory(spec, tokens, batch=batch, dtype=dtype, view=view).reserved_bytes


def _row(row: Reference, ours: int) -> dict[str, object]:
    by_hand = ", by hand" if row.method == BY_HAND else ""
    return {
        "what": row.title,
        "counted as": f"{row.view}, {row.dtype}",
        "tokens": row.tokens,
        _PRINTED: row.printed.replace("key-value heads", "KV heads"),
        "kvviz, B": ours,
        "agrees": "no, source slips" if row.slip else f"yes{by_hand}" if row.agrees(ours) else "no",
        "source": row.source,
    }


def _three_accounts(scheduler: Scheduler) -> None:
    last = scheduler.last_finished()
    document = (last and last.document) or {"runs": []}
    run = next((run for run in document["runs"] if run["mode"] == "cached" and run.get("memory")), None)
    if run is None:
        st.caption("Run a model on the live page, and its cache's three accounts stand here.")
        return
    account = run["memory"]
    kept = (account.get("allocator") or {}).get("kept")
    st.header("One cache, three accounts")
    one, two, three = st.columns(3)
    one.metric("Formula", f"{account['formula']:,} B")
    two.metric("Sum over its tensors", f"{account['tensors']:,} B")
    three.metric("Kept by the allocator", f"{kept:,} B" if kept is not None else "not told here")
    st.caption(f"{plain(document['model'])} on the live page, mode cached, after its last step.")


def log_line(main: Answer, asked: Asked, text: str) -> None:
    """Say whether the lines of a log agree with the main model's figures."""
    if not text or main.spec is None:
        return
    case = {"tokens": asked.tokens, "batch": asked.batch, "tensor_parallel": asked.tensor_parallel}
    with errors_said():
        verdict = judge(parse(text), main.spec, dtype=asked.dtype, **case)
        show = {True: st.success, False: st.error, None: st.info}[verdict.agrees]
        show(plain(f"{main.title}: {verdict.sentence}"))
