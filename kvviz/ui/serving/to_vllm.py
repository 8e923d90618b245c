"""The serving page's last section: what a server such as vLLM adds to a cache, held against what is here."""

import html
import re
import tomllib
from pathlib import Path
from typing import Any

import streamlit as st

from kvviz.charts import palette
from kvviz.ui.folders import PAGES
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.plots import colour_key, in_pairs

HERE = Path(__file__)
ROWS: list[dict[str, Any]] = tomllib.loads(HERE.with_suffix(".toml").read_text(encoding="utf-8"))["rows"]
FORMS = {"same": "same form", "near": "similar form"}
RELATIONS = {"same": "the same", "near": "similar", "none": "no counterpart"}
KEY = {  # of the pictures; their stylesheet has the same colours
    "kept (a letter says whose it is)": (palette.KEPT, "#3F97CF"),
    "computed": (palette.NEW, "#35C79E"),
    "computed again": (palette.AGAIN, "#F28E4B"),
    "given up": (palette.GIVEN_UP, "#E39BC4"),
    "free": ("#E6EAEE", "#2A343E"),
}


def section() -> None:
    """Draw a card for each row, with its options in an expander."""
    st.markdown(TEXTS["serving"]["to_vllm"])
    st.header(claim(), anchor="to-vllm")
    st.html(HERE.with_suffix(".css"))
    colour_key(KEY)
    for place, row in in_pairs(ROWS):
        with place.container(border=True, height="stretch"):
            st.html(_card(row))
            with st.expander(f"{row['name']}: what differs here, and a run"):
                st.html(f'<ul class="kvo-pairs">{"".join(map(_pair, row["pairs"]))}</ul>')
                icon = ":material/play_arrow:"
                for label, fields in row["links"].items():
                    st.page_link(PAGES / "live.py", label=label, icon=icon, query_params=fields)
                for label, part in row.get("parts", {}).items():
                    st.page_link(PAGES / "serving.py", label=label, icon=icon, query_params={"part": part})
    st.caption(TEXTS["serving"]["flash"])


def claim() -> str:
    """Say how many of the ideas vLLM has in the same form, in part at least."""
    same = sum(_nearest(row) == "same" for row in ROWS)
    return f"Of these {len(ROWS)} ideas, vLLM has {same} in the same form and {len(ROWS) - same} in a similar one"


def _nearest(row: dict[str, Any]) -> str:
    """Return how near an idea is to vLLM's at best, a key of FORMS."""
    return "same" if any(pair["is"] == "same" for pair in row["pairs"]) else "near"


def _card(row: dict[str, Any]) -> str:
    cells = "".join(
        f'<i data-is="{cell}">{cell if cell.isalpha() and cell != "x" else ""}</i>'
        for line in row["picture"]
        for cell in line.split()
    )
    option = next(pair["option"] for pair in row["pairs"] if "option" in pair)
    form = _nearest(row)
    head = f'<h3>{row["name"]} <b data-is="{form}">{FORMS[form]}</b></h3>'
    text = f"{head}<p>{html.escape(row['what'])}</p><code>{html.escape(option)}</code>"
    picture = f'<div class="kvo-picture" aria-hidden="true">{cells}</div><small>{html.escape(row["shows"])}</small>'
    return f'<div class="kvo"><div>{picture}</div><div>{text}</div></div>'


def _pair(pair: dict[str, str]) -> str:
    """Say of a pair how near the two are, vLLM's option, and why; what is between stars is emphasized."""
    option = f"<code>{html.escape(pair['option'])}</code><br>" if "option" in pair else ""
    said = re.sub(r"\*(.+?)\*", r"<em>\1</em>", html.escape(pair["text"]))
    return f'<li><b data-is="{pair["is"]}">{RELATIONS[pair["is"]]}</b> {option}{said}</li>'
