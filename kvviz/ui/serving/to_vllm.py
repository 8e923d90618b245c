"""The serving page's last section: what a server such as vLLM adds to a cache, each with the run here that shows it."""

import tomllib
from pathlib import Path
from typing import Any

import streamlit as st

from kvviz.ui.folders import PAGES
from kvviz.ui.frame.page import TEXTS

ROWS: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["rows"]


def section() -> None:
    """Draw the rows."""
    st.header("From this lab to vLLM", anchor="to-vllm")
    st.markdown(TEXTS["serving"]["to_vllm"])
    for row in ROWS:
        with st.container(border=True):
            name, what, why, links = st.columns([2, 4, 4, 4], gap="medium")
            name.markdown(f"**{row['name']}**")
            what.markdown(f"**What.** {row['what']}")
            why.markdown(f"**Why.** {row['why']}")
            icon = ":material/play_arrow:"
            for label, fields in row["links"].items():
                links.page_link(PAGES / "live.py", label=label, icon=icon, query_params=fields)
            for label, part in row.get("parts", {}).items():
                links.page_link(PAGES / "serving.py", label=label, icon=icon, query_params={"part": part})
    st.caption(TEXTS["serving"]["flash"])
