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
RELATIONS = {"same": "the same", "near": "similar", "none": "no counterpart"}
KEY = {  # of the pictures; their stylesheet has the same colours
    "kept; a letter: whose it is": (palette.KEPT, "#3F97CF"),
    "computed": (palette.NEW, "#35C79E"),
    "computed again": (palette.AGAIN, "#F28E4B"),
    "given up": (palette.GIVEN_UP, "#E39BC4"),
    "free": ("#E6EAEE", "#2A343E"),
}


def section() -> None:
    """Draw a card for each row."""
    st.header(claim(), anchor="to-vllm")
    st.markdown(TEXTS["serving"]["to_vllm"])
    colour_key(KEY)
    st.html(HERE.with_suffix(".css"))
    for place, row in in_pairs(ROWS):
        with place.container(border=True, height="stretch"):
            st.html(_card(row))
            with st.container(horizontal=True, gap="small"):
                icon = ":material/play_arrow:"
                for label, fields in row["links"].items():
                    st.page_link(PAGES / "live.py", label=label, icon=icon, query_params=fields)
                for label, part in row.get("parts", {}).items():
                    st.page_link(PAGES / "serving.py", label=label, icon=icon, query_params={"part": part})
    st.caption(TEXTS["serving"]["flash"])


def claim() -> str:
    """Say how many of the mechanisms are the same here and there."""
    found = [pair["is"] for row in ROWS for pair in row["pairs"]]
    same, near, none = (found.count(name) for name in RELATIONS)
    said = f"{same} of {len(found)} mechanisms are the same here and in vLLM"
    return f"{said}, {near} are similar, {none} only one of the two has"


def _card(row: dict[str, Any]) -> str:
    cells = "".join(
        f'<i data-is="{cell}">{cell if cell.isalpha() and cell != "x" else ""}</i>'
        for line in row["picture"]
        for cell in line.split()
    )
    pairs = "".join(map(_pair, row["pairs"]))
    text = f"<h3>{row['name']}</h3><p>{html.escape(row['what'])}</p><ul>{pairs}</ul>"
    return f'<div class="kvo"><div class="kvo-picture" aria-hidden="true">{cells}</div><div>{text}</div></div>'


def _pair(pair: dict[str, str]) -> str:
    """Say of a pair how near the two are, vLLM's option, and why; what is between stars is emphasized."""
    option = f"<code>{html.escape(pair['option'])}</code><br>" if "option" in pair else ""
    said = re.sub(r"\*(.+?)\*", r"<em>\1</em>", html.escape(pair["text"]))
    return f'<li><b data-is="{pair["is"]}">{RELATIONS[pair["is"]]}</b> {option}{said}</li>'
