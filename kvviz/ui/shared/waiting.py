"""A look that takes a while: asked for by a button, waited for without holding anyone up, shared by all who ask."""

from collections.abc import Callable
from typing import Any

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.experiments.eta import in_line
from kvviz.experiments.kind import Spec
from kvviz.server.job import Work
from kvviz.server.scheduler import Hub
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.session import owner

Progress = Callable[[list[str]], tuple[float, str]]


def measured(
    hub: Hub, spec: Spec, *, key: str, words: str, progress: Progress, press: str = "Measure"
) -> dict[str, Any] | None:
    """The buttons, `words` beside them, and the document once there is one.

    `progress` makes a share and words of the records so far.
    """
    work = _work(hub, spec, key)
    active = work is not None and work.active
    there = work is not None and work.state == "done"
    first, second, third = st.columns([2, 2, 8], vertical_alignment="center")
    label = f"{press} again" if there else press
    pressed = first.button(label, type="primary", disabled=active, width="stretch", key=f"{key}_measure")
    mine = active and hub.may_stop(work.id, owner())
    if second.button("Stop", disabled=not mine, width="stretch", key=f"{key}_stop"):
        hub.stop(work.id, owner())
        st.rerun()
    third.caption(words)
    if pressed:
        _submit(hub, spec, key, again=there)
    elif active:
        wait(hub, work.id, lambda work: st.progress(*progress(work.records)), every=0.5)
    elif work is not None and not there:
        st.warning(plain(work.message or "This measurement was stopped."))
    return work.document if there else None


def _work(hub: Hub, spec: Spec, key: str) -> Work | None:
    """What this session asked for last, where it was this; else somebody's who asked for the same."""
    before, work_id = st.session_state.get(f"{key}_look") or (None, "")
    return (hub.get(work_id) if before == spec else None) or hub.same(spec)


def _submit(hub: Hub, spec: Spec, key: str, *, again: bool) -> None:
    try:
        st.session_state[f"{key}_look"] = (spec, hub.submit(spec, owner(), again=again))
    except KvvizError as error:
        st.warning(plain(error))
        return
    st.rerun()


def wait(hub: Hub, work_id: str, running: Callable[[Work], Any], *, every: float) -> None:
    """Its place in the line, then what `running` draws of it, every so many seconds; the whole page when it is over."""

    def look() -> None:
        work = hub.get(work_id)
        if work is None or not work.active:
            st.rerun()
        elif work.state == "queued":
            ahead, expected = hub.ahead(work_id), hub.expected_wait(work_id)
            st.info(in_line(ahead, expected, hub.held_by), icon=":material/hourglass_empty:")
        else:
            running(work)

    st.fragment(look, run_every=every)()
