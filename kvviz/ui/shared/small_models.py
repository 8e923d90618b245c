"""What the pages that look inside share: a small model to choose, a prompt, and a look that is waited for."""

import json
from collections.abc import Callable
from typing import Any

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.decoding.scratch.design import check_design
from kvviz.experiments.inside.spec import LookSpec
from kvviz.models.catalog.rows import models
from kvviz.models.sources import find_source
from kvviz.server.job import Job
from kvviz.server.scheduler import Scheduler
from kvviz.ui.live.form import default_model
from kvviz.ui.shared import filled
from kvviz.ui.shared.model_choice import weights_in_words
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.session import owner
from kvviz.ui.shared.waiting import wait

PROMPT = "Once upon a time there was a little"
SMALL = 200_000_000  # parameters: what a student's laptop builds from random weights within seconds


@st.cache_data(show_spinner=False)
def buildable() -> dict[str, str]:
    """Catalog models that the transformer from scratch can be and that are small enough to look at, with titles."""
    found = {}
    for row in models().values():
        try:
            check_design("scratch", row.config)
        except KvvizError:
            continue
        if row.params <= SMALL:
            found[row.id] = row.title
    return found


def choose_model(key: str) -> str:
    """A select box over the models that can be looked into."""
    titles = buildable()
    st.session_state.setdefault(key, default_model() if default_model() in titles else next(iter(titles)))
    ids = list(titles)
    return st.selectbox("Model", ids, filled.index(key, ids), format_func=titles.__getitem__, key=key)


def taken(
    scheduler: Scheduler, spec: LookSpec, show: Callable[[dict[str, Any], dict[str, Any]], None], *, key: str = "look"
) -> None:
    """Have a look taken, wait for it without holding anyone up, and show it: `show(about, found)`."""
    try:
        work = asked_for(scheduler, spec, key)
    except KvvizError as error:
        st.warning(plain(error))
        return
    if work.active:
        wait(scheduler, work.id, lambda _: st.info("Looking …", icon=":material/search:"), every=0.3)
    elif work.state == "done":
        about, found = (json.loads(text) for text in work.records[1:3])
        show(about, found)
    else:
        failed(work, key)


def failed(work: Job, key: str = "look") -> bool:
    """Whether the look could not be taken; then it is said why, and it can be tried again."""
    if work.active or work.state == "done":
        return False
    st.warning(plain(work.message or "This look was stopped."))
    if st.button("Try again", key=f"{key}_again"):
        st.session_state[key] = None
        st.rerun()
    return True


def asked_for(scheduler: Scheduler, spec: LookSpec, key: str = "look") -> Job:
    """The look that this session has asked for; one that failed is not asked for again by itself."""
    before, look_id = st.session_state.get(key) or (None, "")
    work = scheduler.get(look_id) if before == spec else None
    if work is None:
        look_id = scheduler.submit(spec, owner())
        st.session_state[key] = (spec, look_id)
        work = scheduler.get(look_id)
    assert work is not None
    return work


def weights_note(about: dict[str, Any]) -> None:
    """Where the numbers come from, under them."""
    kind = weights_in_words(about["weights"])
    title = find_source(about["spec"]["model"], about["spec"]["weights"]).title
    st.caption(f"{title}, {kind}, {about['dtype']}, on {about['device']}. {about['note']}")
