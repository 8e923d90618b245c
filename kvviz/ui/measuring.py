"""What pages share that measure on demand: the buttons, the wait, and the document once there is one."""

import json
from collections.abc import Callable
from typing import Any

import streamlit as st

from kvviz.errors import KvvizError
from kvviz.foresight import in_line
from kvviz.hub import Hub
from kvviz.looks import CachesSpec, RoofSpec
from kvviz.ui.plain import plain
from kvviz.ui.session import owner
from kvviz.works import Work

Spec = CachesSpec | RoofSpec
Progress = Callable[[list[str]], tuple[float, str]]


def measured(hub: Hub, spec: Spec, key: str, foreseen: str, progress: Progress) -> dict[str, Any] | None:
    """The buttons, and the document once there is one; whoever asks for the same shares it.

    `key` begins the names of the page's widgets; `foreseen` says how long it will take; `progress` makes of the records
    so far a share and words.
    """
    work = _work(hub, spec, key)
    active = work is not None and work.active
    there = work is not None and work.state == "done"
    press, stop, words = st.columns([2, 2, 8], vertical_alignment="center")
    label = "Measure again" if there else "Measure"
    pressed = press.button(label, type="primary", disabled=active, width="stretch", key=f"{key}_measure")
    mine = active and hub.may_stop(work.id, owner())
    if stop.button("Stop", disabled=not mine, width="stretch", key=f"{key}_stop"):
        hub.stop(work.id, owner())
        st.rerun()
    words.caption(foreseen)
    if pressed:
        _submit(hub, spec, key, again=there)
    elif active:
        st.fragment(lambda: _wait(hub, work.id, progress), run_every=0.5)()
    elif work is not None and not there:
        st.warning(plain(work.message or "This measurement was stopped."))
    return work.document if there else None


def _work(hub: Hub, spec: Spec, key: str) -> Work | None:
    """What this session asked for last, where it was this; else somebody's who asked for the same."""
    before, work_id = st.session_state.get(f"{key}_look") or (None, "")
    return (hub.get(work_id) if before == spec else None) or hub.same_look(spec)


def _submit(hub: Hub, spec: Spec, key: str, *, again: bool) -> None:
    try:
        st.session_state[f"{key}_look"] = (spec, hub.submit_look(spec, owner(), again=again))
    except KvvizError as error:
        st.warning(plain(error))
        return
    st.rerun()


def _wait(hub: Hub, work_id: str, progress: Progress) -> None:
    work = hub.get(work_id)
    if work is None or not work.active:
        st.rerun()
    elif work.state == "queued":
        st.info(in_line(hub.ahead(work_id), hub.expected_wait(work_id), hub.held_by), icon=":material/hourglass_empty:")
    else:
        done, words = progress(work.records)
        st.progress(done, text=words)


def last_of(records: list[str]) -> dict[str, Any]:
    """The newest record; empty before the first."""
    return json.loads(records[-1]) if records else {}
