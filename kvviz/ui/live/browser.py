"""A run in the reader's own browser: what its engine is asked for, and what comes back of it."""

import json

import streamlit as st

from kvviz.base.checks import parse
from kvviz.base.errors import KvvizError
from kvviz.base.settings import settings
from kvviz.experiments.comparison.in_browser import DEVICE, order_of
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.kind import Record
from kvviz.server.jobs import Job
from kvviz.server.rooms.class_run import ASKED_OF_A_CLASS, read_work
from kvviz.server.scheduler import Scheduler
from kvviz.store.files.browser import from_browser
from kvviz.ui.shared.form import Address
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.session import owner

ASKED = "browser_run"  # what this session's browser was asked for last
_SAME_WORK = ("model", "weights", "sampling")  # and the same prompt


def for_a_class(work: ComparisonSpec | None) -> Record:
    """Return the work that a teacher may ask the class's browsers for: `work`, or the `problem` that prevents it."""
    if work is None:
        return {"problem": "it can't be measured as it stands"}
    asked = {name: getattr(work, name) for name in ASKED_OF_A_CLASS}
    try:
        read_work(asked)
    except KvvizError as error:
        return {"problem": str(error)}
    return {"work": asked}


def run_or_stop(work: ComparisonSpec | None) -> None:
    """Draw Run and Stop for this browser."""
    if work is not None and st.session_state.get("browser_start"):  # asked before the buttons, which show what follows
        st.session_state[ASKED] = {"order": order_of(work), "over": False}
    running = st.session_state.get(ASKED) is not None and not st.session_state[ASKED]["over"]
    with st.container(horizontal=True, width="content"):
        st.button("Run", type="primary", disabled=work is None, width=88, key="browser_start")
        stopped = st.button("Stop", disabled=not running, width=88, key="browser_stop")
    if stopped:
        del st.session_state[ASKED]
        st.rerun()


def order(chosen: bool) -> Record | None:
    """What this session's browser is asked for; None if it measures nothing, or is not `chosen` any more."""
    if not chosen:
        st.session_state.pop(ASKED, None)
    return st.session_state[ASKED]["order"] if st.session_state.get(ASKED) else None


def take_in(scheduler: Scheduler, answer: str | None, address: Address) -> None:
    """Show what the browser has measured as a comparison of its own; a run that failed stays on the page."""
    asked = st.session_state.get(ASKED)
    if not answer or asked is None or asked["over"]:
        return
    try:
        found = parse(answer, settings().limits.upload_bytes, "comparison")
        if not isinstance(found, dict) or found.get("id") != asked["order"]["id"]:
            return
        asked["over"] = True
        if not found.get("failed"):
            address.write({"comparison": scheduler.adopt(from_browser(found.get("records")), owner())})
            del st.session_state[ASKED]
    except KvvizError as error:
        st.error(plain(error))
    else:
        st.rerun()


def agreement(scheduler: Scheduler, watched: str | None) -> str:
    """Say on how many tokens the server and a browser agree, if one is shown and the other did the same work here."""
    shown = scheduler.shown(watched)
    if shown is None or not shown.document:
        return ""
    mine, prompt = shown.document, _prompt(shown)
    done = [(job, job.document) for job in reversed(scheduler.jobs()) if job.kind == shown.kind and job.document]
    alike = ((job, other) for job, other in done if all(other.get(name) == mine.get(name) for name in _SAME_WORK))
    others = (other for job, other in alike if _is_browsers(other) != _is_browsers(mine) and _prompt(job) == prompt)
    other = next(others, None)
    if other is None:
        return "Run the same on “This server” too, and this line compares the tokens." if _is_browsers(mine) else ""
    pairs = list(zip(_tokens(mine), _tokens(other), strict=False))
    same = next((i for i, (one, two) in enumerate(pairs) if one != two), len(pairs))
    return f"The server and your browser agree on {same} of {len(pairs)} tokens."


def _prompt(job: Job) -> str | None:
    """The prompt's text, which its document leaves out where it is a book's or drawn; None without a record of it."""
    return next((record["prompt"]["text"] for record in map(json.loads, job.records) if record["t"] == "started"), None)


def _is_browsers(document: Record) -> bool:
    return bool(document.get("environment", {}).get("device") == DEVICE)


def _tokens(document: Record) -> list[int]:
    """The tokens of the mode that a comparison's others are held against."""
    return next(run["token_ids"] for run in document["runs"] if run["mode"] == document["reference"])
