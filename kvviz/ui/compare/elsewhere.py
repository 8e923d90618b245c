"""Measure a kept comparison again on another device, and lay both over one another."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.decoding.modes import mode_named
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.kind import DeviceChoice
from kvviz.server.jobs import Job
from kvviz.server.persister import library
from kvviz.server.scheduler import Scheduler
from kvviz.store.db.stored import Run, Stored
from kvviz.ui.compare.form import MOST_RUNS
from kvviz.ui.compare.manage import title_of
from kvviz.ui.folders import PAGES
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.devices import described
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.model_choice import accepted
from kvviz.ui.shared.plain import errors_said, plain
from kvviz.ui.shared.session import owner

ASKED = "c_elsewhere"  # of the session: what it measures again


@dataclass(frozen=True)
class Asked:
    """What was asked for: the job, its device, the runs that are on the page and each one's mode."""

    job_id: str
    device: str
    runs: tuple[tuple[str, str], ...]

    def pairs(self) -> list[str]:
        """The ids of the runs, each followed by that of the run of the same mode on the other device."""
        return [run_id for old, mode in self.runs for run_id in (old, f"{self.job_id}-{mode}")]


def same_elsewhere(form: Form, runs: Sequence[Run], scheduler: Scheduler) -> None:
    """Offer to measure a picked comparison on another device; draw nothing if the server has only one."""
    _take_in(form, scheduler)
    again = {run.comparison.id: (run.comparison, spec) for run in runs if (spec := _again(run)) is not None}
    places = {name: _others(stored, scheduler.devices()) for name, (stored, _) in again.items()}
    offered = [name for name in again if places[name]]
    if not offered:
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = offered[0]
        if len(offered) > 1:
            chosen = st.selectbox(
                "Comparison", offered, format_func=lambda name: title_of(again[name][0]), key="c_again", width=260
            )
        there = places[chosen]
        device = st.selectbox(
            "Measure the same on",
            list(there),
            format_func=lambda name: described(there[name]),
            key=f"c_device_{chosen}",
            help=TEXTS["compare"]["elsewhere"],
            width=480,
        )
        asked = st.session_state.get(ASKED)
        pressed = st.button("Measure there", disabled=asked is not None and _under_way(scheduler, asked), key="c_there")
    if pressed and device is not None:
        with errors_said():
            spec = replace(again[chosen][1], device=device)
            accepted(scheduler, spec)
            picked = tuple((run.id, run.mode) for run in runs if run.comparison.id == chosen and run.mode in spec.modes)
            st.session_state[ASKED] = Asked(scheduler.submit(spec, owner()), device, picked)
            st.rerun()


def _again(run: Run) -> ComparisonSpec | None:
    """What was asked for, without a server's own modes; None if nothing is left, or if it can't be read."""
    with suppress(KvvizError):
        spec = ComparisonSpec.from_dict(run.spec)
        return replace(spec, modes=tuple(name for name in spec.modes if not mode_named(name).elsewhere))
    return None


def _others(stored: Stored, devices: Sequence[DeviceChoice]) -> dict[str, DeviceChoice]:
    """The devices other than the one that measured."""
    here = (stored.device, stored.device_name)
    return {one["device"]: one for one in devices if (one["device"], one["device_name"]) != here}


def _under_way(scheduler: Scheduler, asked: Asked) -> bool:
    job = scheduler.get(asked.job_id)
    return job is not None and not _over(job)


def _over(job: Job) -> bool:
    """Whether the job has ended and, if it was measured, is kept."""
    if job.active:
        return False
    stored = library().get(job.id) if job.state == "done" else None
    return job.state != "done" or (stored is not None and stored.state == "done")


def _take_in(form: Form, scheduler: Scheduler) -> None:
    """Say how the measurement goes on; once it is kept, lay its runs over those that it repeats."""
    asked = st.session_state.get(ASKED)
    if asked is None:
        return
    with errors_said():
        job = scheduler.get(asked.job_id)
        if job is not None and not _over(job):
            st.fragment(lambda: _wait(scheduler, asked), run_every=0.5)()
            return
        st.session_state[ASKED] = None
        if job is not None and job.state == "done":
            pairs = asked.pairs()
            form["runs"] = [*pairs, *(run for run in form["runs"] if run not in pairs)][:MOST_RUNS]
            st.rerun()
        why = (job and job.message) or "it was stopped"
        st.warning(f"The same work was not measured on {plain(asked.device)}: {plain(why)}.")


def _wait(scheduler: Scheduler, asked: Asked) -> None:
    job = scheduler.get(asked.job_id)
    if job is None or _over(job):
        st.rerun()
    words = scheduler.place(job.id).words if job.state == "queued" else "It is being measured."
    st.info(f"The same work on {plain(asked.device)}. {words}", icon=":material/hourglass_empty:")
    st.page_link(
        PAGES / "live.py",
        label="Watch it on the live page",
        icon=":material/arrow_forward:",
        query_params={"comparison": job.id},
    )
