"""The devices that a form offers by name, and the queue for them."""

from importlib.util import find_spec

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.base.records import SPLIT
from kvviz.base.words import human, lasting, ordinal
from kvviz.decoding.modes import title_of
from kvviz.decoding.requirements import Work, needs
from kvviz.experiments.kind import DeviceChoice
from kvviz.experiments.registry import KINDS
from kvviz.models.catalog.rows import models
from kvviz.models.sources import find_source
from kvviz.server.jobs import Job, mark_of
from kvviz.server.scheduler import Scheduler
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.model_choice import title
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.session import owner
from kvviz.ui.shared.tables import draw_table

AUTO = "auto"


def choose_device(scheduler: Scheduler, form: Form, field: str = "device", *, split: bool = False) -> str:
    """Choose the device that measures, where there are several; returns its name.

    With `split` the model may be spread over all of them too.
    """
    named = {one["device"]: one for one in scheduler.devices()}
    if len(named) > 1 or split:
        here = (scheduler.device or {}).get("device", "")
        words = {AUTO: f"auto ({here})", SPLIT: "split: over all devices and the disk, for a model larger than one"}
        st.selectbox(
            "Device",
            format_func=lambda name: words[name] if name in words else described(named[name]),
            **form.choice(field, [AUTO, *named, *([SPLIT] if split else [])]),
        )
    return str(form[field])


def can_split(scheduler: Scheduler, work: Work) -> bool:
    """Whether a form offers to split a model: over several devices, or because the only one lacks memory for the work.

    Only the single worker of a server may use all devices.
    """
    device = scheduler.device
    if device is None or scheduler.workers[0].name or len(scheduler.workers) > 1 or find_spec("accelerate") is None:
        return False
    if len(scheduler.devices()) > 1:
        return True
    try:
        wanted = needs(find_source(work.model, work.weights), work)
    except KvvizError:  # an unknown model, or one of unknown size
        return False
    return wanted.total > scheduler.limits.memory_share * device.get("free_bytes", device["total_bytes"])


def described(choice: DeviceChoice) -> str:
    """A device as a form offers it: its name, its hardware, its memory."""
    total = human(choice["total_bytes"])
    room = f"{human(choice['free_bytes'])} of {total} free" if "free_bytes" in choice else total
    return f"{choice['device']}: {choice['device_name']}, {room}"


def show_queue(scheduler: Scheduler) -> None:
    """Offer to see who waits for what and how long, when more than one job is under way or waits."""
    jobs = scheduler.line()
    if len(jobs) < 2:
        return
    with st.popover(f"Queue: {len(jobs)}", icon=":material/hourglass_empty:"):
        _line(scheduler)


@st.fragment
def _line(scheduler: Scheduler) -> None:
    mine = mark_of(owner())
    rows = [
        {
            "place": _place(scheduler, job),
            "wait": _wait(scheduler, job),
            "asked for": f"{lasting(waited)} ago",
            "whose": "yours" if mine and job.made_by == mine else "another's",
            "what": _what(job),
        }
        for job, waited in scheduler.line()
    ]
    if rows:
        draw_table(rows)
    else:
        st.caption("Nobody waits.")
    st.caption("Browsers take turns. A wait is the estimate for the jobs before yours, without loading.")
    st.button("Look again", key="queue_again")


def _place(scheduler: Scheduler, job: Job) -> str:
    if job.state != "queued" or not scheduler.place(job.id).ahead:
        on = scheduler.measured_on(job)
        return f"on {on}" if on else "under way"
    return f"{ordinal(scheduler.place(job.id).ahead)} in line"


def _what(job: Job) -> str:
    """What a job measures: a model outside the catalog may be somebody's folder, so it is not named."""
    asked = job.description()
    names, modes = asked.get("models") or [asked.get("model")], ", ".join(map(title_of, asked.get("modes", ())))
    named = [title(name) if name in models() else "a model of somebody's own" for name in names if name]
    called = KINDS[job.kind].spec.called + (f" of {', '.join(dict.fromkeys(named))}" if named else "")
    return plain(f"{called}: {modes}" if modes else called)


def _wait(scheduler: Scheduler, job: Job) -> str:
    place = scheduler.place(job.id)
    if job.state != "queued" or not place.ahead:
        return "none"
    if place.wait_s is None:
        return "unknown"
    return f"about {lasting(place.wait_s)}" if place.wait_s >= 1 else "soon"
