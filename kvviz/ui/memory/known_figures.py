"""What the formula agrees with: published figures, the accounts of the model that ran last, an engine's own log."""

import json
import re
from collections.abc import Sequence
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
from kvviz.ui.memory.links import linked, sources
from kvviz.ui.shared.experiment import live_recording, say_recorded
from kvviz.ui.shared.fold import fold
from kvviz.ui.shared.plain import errors_said, plain
from kvviz.ui.shared.tables import draw_table

BY_HAND = "arithmetic on the published config"  # the method of a figure whose source prints no bytes
_PRINTED = "printed or by hand"
_BINARY = " (powers of 1024)"
_HEAD = "| figure | source | printed | kvviz | why they differ |\n|-|-|-:|-:|-|"  # of a table of Markdown
_TOLD = re.compile(r"^The \w+ prints [\d.]+ GB[,:] |, which take [\d.]+ GiB(?=\.$)")  # what the other columns say
_SEEN = 437  # pixels: the head and eleven rows and a half, so that one sees that there are more
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
    slips = [(row, ours) for row, ours in figures if row.slip]
    others = [(row, ours) for row, ours in figures if not row.slip]
    agree = sum(row.agrees(ours) for row, ours in others)
    said = f"agree within the rounding of what is printed; in {len(slips)} the source slips:"
    st.markdown(f"**{agree} of {len(figures)}** {said}")
    st.container(key="m_slips").markdown("\n".join([_HEAD, *(_slip(*row) for row in slips)]))
    if any(_BINARY in row.printed for row, _ in slips):
        st.caption(TEXTS["memory"]["binary"])
    fold(f"The other {len(others)} figures", "m_figures", lambda: _others(others))


def _slip(row: Reference, ours: int) -> str:
    """A row of the table under `_HEAD`: a figure whose source slips, and why."""
    printed, slip = (_typeset(text) for text in (row.printed, row.slip or ""))
    why = _TOLD.sub("", slip)
    source = f"{'' if _TOLD.match(slip) else 'config: '}{linked(row.source)}"  # many texts may print the same
    return f"| {row.title} | {source} | {printed} | {ours / 2**30:.2f} GiB | {why[0].upper()}{why[1:]} |"


def _typeset(text: str) -> str:
    """A text of the catalog as the table has it: a GB of 2³⁰ bytes has an asterisk."""
    text = text.replace(_BINARY, "\\*").replace("key-value heads", "KV heads").replace(" x ", " × ")
    return re.sub(r"(?<=\d)-(?=\d)", "–", re.sub(r"(?<=\d)GB", " GB", text))


def _others(figures: Sequence[tuple[Reference, int]]) -> None:
    st.caption(TEXTS["memory"]["by_hand"])
    draw_table([_row(*each) for each in figures], height=_SEEN, columns=_COLUMNS, key="m_references")


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
        "agrees": f"yes{by_hand}" if row.agrees(ours) else "no",
        "source": row.source,
    }


def _three_accounts(scheduler: Scheduler) -> None:
    """Draw the accounts of the run that ended last, or until one has of the kept recording."""
    last = scheduler.last_finished()
    document = (last and last.document) or {"runs": []}
    run = next((run for run in document["runs"] if run["mode"] == "cached" and run.get("memory")), None)
    if run:
        account, title, batch = run["memory"], plain(document["model"]), document["batch"]
        prompt, new = document["prompt_tokens"], len(run["step_s"])
    else:
        recorded = live_recording("recording")
        started, *records = recorded["records"]
        account = next(each for each in records if each["t"] == "memory" and each["mode"] == "cached")
        title, batch = started["model"]["title"], started["spec"]["batch"]
        prompt, new = started["prompt"]["tokens"], started["spec"]["new_tokens"]
    each = f"{batch:,} sequences of " * (batch > 1)
    st.header(f"One cache, three accounts: {title}, {each}{prompt + new - 1:,} tokens", anchor="accounts")
    if run:
        st.caption("Of the run that ended last on the live page, mode cached, after its last step.")
    else:
        made = f"{title} on {started['environment']['device_name']}, made on {recorded['made']}"
        press = "run a model on the Live page, and its accounts stand here."
        say_recorded(f"This is a **recording** of {made}: {press}", "accounts")
    kept = (account.get("allocator") or {}).get("kept")
    with st.container(horizontal=True, gap="medium", key="m_accounts"):
        st.metric("Formula", f"{account['formula']:,} B", width="content")
        st.metric("Sum over its tensors", f"{account['tensors']:,} B", width="content")
        said = f"{kept:,} B" if kept is not None else "not told here"
        st.metric("Kept by the allocator", said, width="content")
    st.caption(TEXTS["memory"]["accounts"])


def log_line(main: Answer, asked: Asked, text: str) -> None:
    """Say whether the lines of a log agree with the main model's figures."""
    if not text or main.spec is None:
        return
    case = {"tokens": asked.tokens, "batch": asked.batch, "tensor_parallel": asked.tensor_parallel}
    with errors_said():
        verdict = judge(parse(text), main.spec, dtype=asked.dtype, **case)
        show = {True: st.success, False: st.error, None: st.info}[verdict.agrees]
        show(plain(f"{main.title}: {verdict.sentence}"))
