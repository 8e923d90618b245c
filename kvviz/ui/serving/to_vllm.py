"""The serving page's last section: what a server such as vLLM adds to a cache, each with the run here that shows it."""

import html
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
KEY = {  # of the pictures; their stylesheet has the same colours
    "kept; a letter: whose it is": (palette.KEPT, "#3F97CF"),
    "computed": (palette.NEW, "#35C79E"),
    "computed again": (palette.AGAIN, "#F28E4B"),
    "given up": (palette.GIVEN_UP, "#E39BC4"),
    "free": ("#E6EAEE", "#2A343E"),
}


def section() -> None:
    """Draw a card for each row."""
    st.header("From this lab to vLLM, in eight ideas", anchor="to-vllm")
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


def _card(row: dict[str, Any]) -> str:
    cells = "".join(
        f'<i data-is="{cell}">{cell if cell.isalpha() and cell != "x" else ""}</i>'
        for line in row["picture"]
        for cell in line.split()
    )
    text = (
        f"<h3>{row['name']}</h3><p>{html.escape(row['what'])}</p><code>vllm serve {html.escape(row['option'])}</code>"
    )
    return f'<div class="kvo"><div class="kvo-picture" aria-hidden="true">{cells}</div><div>{text}</div></div>'
