"""A look that takes a while: asked for by a button, waited for without holding anyone up, shared by all who ask."""

from collections.abc import Callable
from typing import Any

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.experiments.eta import in_line
from kvviz.experiments.kind import Spec
from kvviz.server.job import Job
from kvviz.server.scheduler import Scheduler
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.session import owner

Progress = Callable[[list[str]], tuple[float, str]]


def measured(
    scheduler: Scheduler, spec: Spec, *, key: str, words: str, progress: Progress, press: str = "Measure"
) -> dict[str, Any] | None:
    """The buttons, `words` beside them, and the document once there is one.

    `progress` makes a share and words of the records so far.
    """
    work = _work(scheduler, spec, key)
    active = work is not None and work.active
    there = work is not None and work.state == "done"
    first, second, third = st.columns([2, 2, 8], vertical_alignment="center")
    label = f"{press} again" if there else press
    pressed = first.button(label, type="primary", disabled=active, width="stretch", key=f"{key}_measure")
    mine = active and scheduler.may_stop(work.id, owner())
    if second.button("Stop", disabled=not mine, width="stretch", key=f"{key}_stop"):
        scheduler.stop(work.id, owner())
        st.rerun()
    third.caption(words)
    if pressed:
        _submit(scheduler, spec, key, again=there)
    elif active:
        wait(scheduler, work.id, lambda work: st.progress(*progress(work.records)), every=0.5)
    elif work is not None and not there:
        st.warning(plain(work.message or "This measurement was stopped."))
    return work.document if there else None


def _work(scheduler: Scheduler, spec: Spec, key: str) -> Job | None:
    """What this session asked for last, where it was this; else somebody's who asked for the same."""
    before, work_id = st.session_state.get(f"{key}_look") or (None, "")
    return (scheduler.get(work_id) if before == spec else None) or scheduler.same(spec)


def _submit(scheduler: Scheduler, spec: Spec, key: str, *, again: bool) -> None:
    try:
        st.session_state[f"{key}_look"] = (spec, scheduler.submit(spec, owner(), again=again))
    except KvvizError as error:
        st.warning(plain(error))
        return
    st.rerun()


def wait(scheduler: Scheduler, work_id: str, running: Callable[[Job], Any], *, every: float) -> None:
    """Its place in the line, then what `running` draws of it, every so many seconds; the whole page when it is over."""

    def look() -> None:
        work = scheduler.get(work_id)
        if work is None or not work.active:
            st.rerun()
        elif work.state == "queued":
            ahead, expected = scheduler.ahead(work_id), scheduler.expected_wait(work_id)
            st.info(in_line(ahead, expected, scheduler.held_by), icon=":material/hourglass_empty:")
        else:
            running(work)

    st.fragment(look, run_every=every)()
