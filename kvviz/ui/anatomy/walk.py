"""Two walks: with three letters, a line at a time, and through one attention layer, step by step, in the browser."""

from dataclasses import asdict

import streamlit as st

from kvviz.decoding.scratch.listing import listing
from kvviz.experiments.inside import letters as three_letters
from kvviz.experiments.inside.spec import AnatomySpec
from kvviz.server.scheduler import Scheduler
from kvviz.ui.folders import ASSETS_URL
from kvviz.ui.shared.component import component
from kvviz.ui.shared.experiment import requested

_walk = component("kvviz_anatomy", "anatomy/anatomy.js", "kv-anatomy kv-live")


def walk(scheduler: Scheduler, spec: AnatomySpec, head: int) -> None:
    """Draw the walk as its query head `head` sees it; whoever asks for the same inspection shares it."""
    work = requested(scheduler, spec)
    if work is None:
        return
    shown = listing()
    source = {"lines": list(shown.lines), "start": shown.start, "stages": [asdict(stage) for stage in shown.stages]}
    _walk(key="anatomy", data={"look": work.id, "head": head, "assets": ASSETS_URL, "listing": source})


def letters() -> None:
    """Draw Back and Next through the lines, and the cache as boxes."""
    moments = list(three_letters.walk())
    at = st.session_state.setdefault("l_at", 0)
    last = at == len(moments) - 1
    back, onward, _ = st.columns([1, 1, 6])
    back.button("Back", key="l_back", disabled=at == 0, on_click=_move, args=(-1,), width="stretch")
    onward.button("Next", key="l_next", disabled=last, on_click=_move, args=(1,), width="stretch")
    moment = moments[at]
    st.code("\n".join(one.line for one in moments[: at + 1]), language="python")
    boxes = " ".join(f":blue-badge[{entry}]" for entry in moment.cache) or "empty"
    st.markdown(f"**{moment.words.capitalize()}.** The cache: {boxes}")
    if moment.query:
        context = f" What it makes of them: `{moment.context}`" if moment.context else ""
        st.markdown(f"The query: :green-badge[{moment.query}]{context}")
    if last:
        st.caption(
            "One thing is simpler here than in a model: a layer appends D's own key and value before its query looks, "
            "so that D sees itself too, and reads 4 rows. The walk above shows it on real tensors."
        )


def _move(by: int) -> None:
    st.session_state.l_at += by
