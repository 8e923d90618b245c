"""The files of the watched folder on the compare page, as they come."""

from typing import Any

import streamlit as st

from kvviz.experiments.sweep.spec import SweepSpec
from kvviz.server.inbox import EVERY_S, Arrival, inbox
from kvviz.server.script_slots import turn
from kvviz.ui.compare.form import MOST_RUNS
from kvviz.ui.folders import PAGES
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.tables import draw_table

STATES = {"taken": "kept", "waiting": "waits", "refused": "refused"}
SHOWN = 50  # files in the table
LINKED = 5  # sweeps with a link


def watched_folder(form: Form) -> None:
    """List the folder's files, and lay the newest runs over one another; nothing where no folder is watched."""
    if inbox().folder is None:
        return
    st.header("From the watched folder", anchor=False)

    def look() -> None:
        with turn():
            _files(form)

    st.fragment(look, run_every=EVERY_S)()


def _files(form: Form) -> None:
    arrivals = inbox().arrivals
    if inbox().problem:
        st.warning(plain(inbox().problem))
    newest = [run for arrival in arrivals for run in arrival.runs][:MOST_RUNS]
    follow = st.toggle("Draw the newest runs as they come", key="c_follow", help=TEXTS["compare"]["follow"])
    if follow and newest and newest != form["runs"]:
        form["runs"] = newest
        st.rerun()
    if not arrivals:
        st.caption(TEXTS["compare"]["nothing_came"])
        return
    narrow = {"state": st.column_config.TextColumn(width="small")}
    rows = [_row(arrival) for arrival in arrivals[:SHOWN]]
    draw_table(rows, columns=narrow, height=min(320, 37 + 35 * len(rows)), key="c_arrivals")
    sweeps = [arrival for arrival in arrivals if arrival.stored and arrival.stored.kind == SweepSpec.kind]
    for arrival in sweeps[:LINKED]:
        assert arrival.stored is not None
        look: dict[str, Any] = {"icon": ":material/arrow_forward:", "query_params": {"sweep": arrival.stored.id}}
        st.page_link(PAGES / "sweep.py", label=f"Look at the sweep {plain(arrival.name)}", **look)


def _row(arrival: Arrival) -> dict[str, object]:
    return {"file": arrival.name, "state": STATES[arrival.state], "what it holds": arrival.says}
