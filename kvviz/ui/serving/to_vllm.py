"""The serving page's last section: what a server such as vLLM adds to a cache, held against what is here."""

import html
import re
import tomllib
from pathlib import Path
from typing import Any

import streamlit as st

from kvviz.ui.folders import PAGES
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.fold import fold

HERE = Path(__file__)
TABLE: dict[str, Any] = tomllib.loads(HERE.with_suffix(".toml").read_text(encoding="utf-8"))
ROWS: list[dict[str, Any]] = TABLE["rows"]
RELATIONS = {"same": "the same", "near": "similar", "none": "no counterpart"}


def section() -> None:
    """Draw a line for each idea, with the runs that show it, and all options in an expander."""
    st.markdown(TEXTS["serving"]["to_vllm"])
    st.header(claim(), anchor="to-vllm")
    st.html(HERE.with_suffix(".css"))
    for row in ROWS:
        idea, runs = st.columns([4, 1], gap="medium", vertical_alignment="top")
        idea.html(_idea(row))
        icon = ":material/play_arrow:"
        for label, part in row.get("parts", {}).items():
            runs.page_link(PAGES / "serving.py", label=label, icon=icon, query_params={"part": part})
        for label, fields in row["links"].items():
            runs.page_link(PAGES / "live.py", label=label, icon=icon, query_params=fields)
    fold("Option by option: what is the same in vLLM, and what differs", "v_options", _options)
    st.caption(TEXTS["serving"]["flash"].format(**TABLE["checked"]))


def _options() -> None:
    for row in ROWS:
        st.html(f'<div class="kvo-pairs"><h3>{row["name"]}</h3><ul>{"".join(map(_pair, row["pairs"]))}</ul></div>')


def claim() -> str:
    """Say how many of the ideas vLLM has in the same form, in part at least."""
    same = sum(_nearest(row) == "same" for row in ROWS)
    return f"Of these {len(ROWS)} ideas, vLLM has {same} in the same form and {len(ROWS) - same} in a similar one"


def _nearest(row: dict[str, Any]) -> str:
    """Return how near an idea is to vLLM's at best, a key of RELATIONS."""
    return "same" if any(pair["is"] == "same" for pair in row["pairs"]) else "near"


def _idea(row: dict[str, Any]) -> str:
    pair = next(pair for pair in row["pairs"] if "option" in pair)
    flag = re.sub(", .+}", ", …}", pair["option"])  # of an object only the first field: the expander has all
    aim = f"{pair['for']}:<br>" if "for" in pair else ""
    mark = "" if _nearest(row) == "same" else f"<b>{RELATIONS['near']}</b>"
    head = f"<h3>{row['name']} {mark}</h3>{aim}<code>{html.escape(flag)}</code>"
    return f'<div class="kvo"><div>{head}</div><p>{html.escape(row["what"])}</p></div>'


def _pair(pair: dict[str, str]) -> str:
    """Say of a pair how near the two are, vLLM's option, and why; what is between stars is emphasized."""
    option = f"<code>{html.escape(pair['option'])}</code><br>" if "option" in pair else ""
    said = re.sub(r"\*(.+?)\*", r"<em>\1</em>", html.escape(pair["text"]))
    return f'<li><b data-is="{pair["is"]}">{RELATIONS[pair["is"]]}</b> {option}{said}</li>'
