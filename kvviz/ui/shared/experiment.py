"""Ask the worker for an experiment, wait without holding anyone up, and show what it came to.

A session remembers what it asked for last; an identical experiment of somebody else serves as well.
"""

import gzip
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import dropwhile
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvviz.base.errors import KvvizError
from kvviz.experiments.kind import Record, Spec
from kvviz.server.jobs import Job
from kvviz.server.scheduler import Scheduler
from kvviz.server.script_slots import aside
from kvviz.ui.folders import ASSETS, ASSETS_URL
from kvviz.ui.shared.form import Address
from kvviz.ui.shared.plain import errors_said, plain
from kvviz.ui.shared.session import owner

Document = Mapping[str, Any]  # what an experiment came to; its run.py says what is in it
Progress = Callable[[Record], tuple[float, str]]
_ENDS = ("done", "stopped", "failed")  # the records that end a job
A_MOMENT_S = 0.4  # that a reader waits before a page says that something is being done
_LASTING = re.compile(r"(?:about )?\d[\d.,]* (?:ms|s|min|h)\b")


def measured(
    scheduler: Scheduler,
    spec: Spec,
    draw: Callable[[Document], None],
    *,
    place: DeltaGenerator,
    key: str,
    words: str = "",
    progress: Progress | None = None,
    live: Callable[[Record], None] | None = None,
    press: str = "Measure",
    kept: str = "",
    secret: str | None = None,
) -> Job | None:
    """Draw the buttons at their place, `words` below them, and the document once it is measured, else the kept one.

    `kept` names that recording where the spec's kind has several. `progress` makes a share and words of the last record
    so far, which is empty before the first; without it, somebody else shows how the work goes on. `live` draws
    more of that record. `secret` is the key for an endpoint, which goes to the worker alone. Returns the work, if any
    was asked for.
    """
    work = _own(scheduler, spec, key) or scheduler.same(spec)
    if st.session_state.get(f"{key}_measure"):  # asked before the buttons are drawn, so that they show what follows
        with errors_said():
            again = work is not None and work.state == "done"
            work = _submit(scheduler, spec, key, again=again, secret=secret)
    active = work is not None and work.active
    done = work is not None and work.state == "done"
    label = f"{press} again" if done else press
    with place, st.container(horizontal=True, width="content", gap="small"):
        st.button(label, type="primary", disabled=active, key=f"{key}_measure")
        may_stop = work is not None and active and scheduler.may_stop(work.id, owner())
        stopped = st.button("Stop", disabled=not may_stop, key=f"{key}_stop")
    if stopped and work is not None:
        scheduler.stop(work.id, owner())
        st.rerun()
    before = recording(kept or spec.kind) if work is None else None
    if before:
        say_recorded(f"{recorded_words(before, press)} {words}", key)
    elif words:
        st.caption(words)
    if work is not None and active:

        def running(work: Job) -> None:
            last = _last(work.records)
            if progress:
                st.progress(*progress(last))
            if live:
                live(last)

        _wait(scheduler, work.id, running, every=0.5)
    elif work is not None and not done:
        st.warning(plain(work.message or "This measurement was stopped."))
    if work is not None and work.document is not None and done:
        draw(work.document)
    elif before is not None:
        draw(before["document"])
    return work


def run_bar(name: str) -> DeltaGenerator:
    """A bar that holds a form of few fields and, at its end, the buttons. It has its height before its fields come."""
    return st.container(horizontal=True, vertical_alignment="bottom", gap="small", key=f"bar_{name}")


@cache
def recording(name: str) -> Record | None:
    """The kept recording of a kind of experiment, or of a part of a page: the day it was `made`, and its `document`.

    None if there is none of this name.
    """
    file = ASSETS / "recordings" / f"{name}.json.gz"
    return json.loads(gzip.decompress(file.read_bytes())) if file.exists() else None


@cache
def live_recording(name: str) -> Record:
    """The recording of this name that the live page shows: the day it was `made`, if it tells, and its `records`."""
    found: Record = json.loads(gzip.decompress((ASSETS / "live" / f"{name}.json.gz").read_bytes()))
    return found


def kept_look(spec: Spec, name: str = "") -> Record | None:
    """The kept recording of just this inspection: the day it was `made`, and its `records`, what and where first.

    `name` is the recording's where the spec's kind has several. None if it is of another spec, or if there is none.
    """
    kept = recording(name or spec.kind)
    return kept if kept and kept["records"][0]["spec"] == spec.to_dict() else None


def kept_words(kept: Record) -> str:
    """Say that the recording of an inspection is shown, where and when it was made, as plain text."""
    return f"This is a recording made on {kept['records'][0]['device']} on {kept['made']}."


def looked_at(work: Job, spec: Spec, name: str = "") -> dict[str, object]:
    """What a script draws an inspection from: its id, and where its recording lies until it is done."""
    name = name or spec.kind
    kept = kept_look(spec, name) if work.active else None
    address = f"{ASSETS_URL}/recordings/{name}.json.gz"
    return {"look": work.id, "kept": {"address": address, "words": kept_words(kept)} if kept else None}


def say_recorded(words: str, key: str) -> None:
    """Say, as Markdown above what is drawn, that it was not measured now: in the band that every page uses for this."""
    with st.container(key=f"recorded_{key}"):
        st.markdown(tied(words))


def tied(words: str) -> str:
    """Put no-break spaces into each duration, so that no line ends between a number and its unit."""
    return _LASTING.sub(lambda found: found[0].replace(" ", "\u00a0"), words)


def recorded_words(kept: Record, press: str, of: str = "") -> str:
    """Say of what, where and when a recording was made; `of` where its document does not tell, as Markdown."""
    found = kept["document"]
    if "environment" not in found:
        return (
            f"Computed with the settings that the page opens with, the same on every machine; **{press}** uses yours."
        )
    what, where = of or found["title"], plain(_device(found["environment"]))
    made = f"This is a **recording** of {what} on {where}, made on {kept['made']}"
    return f"{made}: press **{press}** to measure here."


def _device(environment: Document) -> str:
    """Name the device of a measurement; of a processor also how many threads computed, where that is recorded."""
    threads = environment.get("threads") if environment.get("device", "").startswith("cpu") else None
    return environment["device_name"] + (f" ({threads} thread{'s' * (threads != 1)})" if threads else "")


def _last(records: Sequence[str]) -> Record:
    return json.loads(records[-1]) if records else {}


def run_or_stop(
    scheduler: Scheduler,
    spec: Spec | None,
    watched: str | None,
    address: Address,
    field: str,
    *,
    prefix: str = "",
    key: str | None = None,
) -> str | None:
    """Draw Run and Stop for an experiment that everybody may watch; returns the id of what is watched from now on.

    The address names it, in `field`. Only one's own can be stopped.
    """
    if spec is not None and st.session_state.get(f"{prefix}run"):  # asked before the buttons, which show what follows
        watched = watch_new(scheduler, spec, address, field, key=key) or watched
    may_stop = scheduler.may_stop(watched or "", owner())
    with st.container(horizontal=True, width="content"):
        run: Any = {"type": "secondary" if may_stop else "primary", "width": 88, "key": f"{prefix}run"}
        stop: Any = {"type": "primary" if may_stop else "secondary", "width": 88, "key": f"{prefix}stop"}
        st.button("Run", disabled=spec is None, **run)
        stopped = st.button("Stop", disabled=not may_stop, **stop)
    if stopped and watched and may_stop:
        scheduler.stop(watched, owner())
        st.rerun()
    return watched


def watch_new(
    scheduler: Scheduler,
    spec: Spec,
    address: Address,
    field: str,
    earlier: Sequence[Record] = (),
    key: str | None = None,
) -> str | None:
    """Queue an experiment and name it in the address; returns its id, None with the reason said if it can't be done.

    `earlier` are the records of an interrupted run, which goes on from there.
    """
    try:
        queued = scheduler.submit(spec, owner(), earlier=earlier, key=key)
    except KvvizError as error:
        st.error(plain(error))
        return None
    address.write({field: queued})
    return queued


def inspected(
    scheduler: Scheduler,
    spec: Spec,
    show: Callable[[Document, Document], None],
    *,
    key: str = "look",
    place: DeltaGenerator | None = None,
    wanted: Callable[[Document], bool] = lambda found: True,
) -> None:
    """Have the inspection done at once, and show it: `show(about, found)`; until it is there, its recording.

    Of several things that it finds, the first that is `wanted` is shown. How the work goes on is said at the `place`,
    else above what is shown; without a recording, nothing is said of work that is done in a moment.
    """
    work = requested(scheduler, spec, key)
    if work is None:
        return
    kept = kept_look(spec)
    if not kept or not wanted(kept["records"][1]):
        kept = None
        _wait_a_moment(scheduler, work, wanted)
    if ready := _found(work, wanted):
        about, found = ready
        show({**about, "device": f"this machine ({about['device']})"}, found)
        return

    def say(words: str) -> None:
        if kept:
            say_recorded(plain(f"{kept_words(kept)} {words}"), key)
        else:
            _waits(words)

    def running(work: Job) -> None:
        if _found(work, wanted):
            st.rerun()
        say("Measuring here …")

    with place or st.container():
        _wait(scheduler, work.id, running, every=0.3, waits=say)
    if kept:
        show(*kept["records"])


def _found(work: Job, wanted: Callable[[Document], bool]) -> tuple[Document, Document] | None:
    """What an inspection tells of where it is done, and the first `wanted` of what it found; None before that."""
    told = dropwhile(lambda record: record["t"] != "look", map(json.loads, work.records))
    about: Document = next(told, {})
    return next(((about, found) for found in told if found["t"] not in _ENDS and wanted(found)), None)


def _wait_a_moment(scheduler: Scheduler, work: Job, wanted: Callable[[Document], bool]) -> None:
    """Return when there is something `wanted`, or after a moment; other pages are drawn meanwhile."""
    until = time.monotonic() + A_MOMENT_S
    with aside():
        while work.active and not _found(work, wanted) and (left := until - time.monotonic()) > 0:
            scheduler.wait(partial(_goes_on, work, len(work.records)), left)


def _goes_on(work: Job, known: int) -> bool:
    """Whether a job has ended, or tells more than the `known` records."""
    return not work.active or len(work.records) > known


def requested(scheduler: Scheduler, spec: Spec, key: str = "look") -> Job | None:
    """The inspection of this spec, asked for if it is new; None, and the reason on the page, if it can't be done.

    One that failed is not asked for again by itself: a button does that.
    """
    work = None
    with errors_said():
        work = _own(scheduler, spec, key) or _submit(scheduler, spec, key)
    if work is None or work.active or work.state == "done":
        return work
    st.warning(plain(work.message or f"{spec.called.capitalize()} was stopped."))
    if st.button("Try again", key=f"{key}_again"):
        st.session_state[f"{key}_asked"] = None
        st.rerun()
    return None


def _own(scheduler: Scheduler, spec: Spec, key: str) -> Job | None:
    """What this session asked for last, if it was this."""
    before, work_id = st.session_state.get(f"{key}_asked") or (None, "")
    return scheduler.get(work_id) if before == spec else None


def _submit(scheduler: Scheduler, spec: Spec, key: str, *, again: bool = False, secret: str | None = None) -> Job:
    """Queue the experiment and remember it as what this session asked for. Raises KvvizError where it can't be done."""
    work_id = scheduler.submit(spec, owner(), again=again, key=secret)
    st.session_state[f"{key}_asked"] = (spec, work_id)
    work = scheduler.get(work_id)
    assert work is not None
    return work


def _waits(words: str) -> None:
    st.info(words, icon=":material/hourglass_empty:")


def _wait(
    scheduler: Scheduler,
    work_id: str,
    running: Callable[[Job], object],
    *,
    every: float,
    waits: Callable[[str], None] = _waits,
) -> None:
    """Draw its place in the line, then what `running` draws of it, every so many seconds; the page when it is over."""

    def look() -> None:
        work = scheduler.get(work_id)
        if work is None or not work.active:
            st.rerun()
        elif work.state == "queued":
            waits(scheduler.place(work_id).words)
        else:
            running(work)

    st.fragment(look, run_every=every)()
