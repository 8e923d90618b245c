"""The anatomy page: its widgets, and the walk through one layer."""

from dataclasses import asdict
from typing import Any

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.decoding.scratch.design import design_of
from kvviz.decoding.scratch.listing import listing
from kvviz.experiments.inside.spec import LookSpec
from kvviz.models.catalog.rows import models
from kvviz.server.scheduler import Scheduler
from kvviz.ui.folders import ASSETS_URL
from kvviz.ui.shared import filled
from kvviz.ui.shared.component import component
from kvviz.ui.shared.links import one_of, take_over, whole, write
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.small_models import PROMPT, asked_for, buildable, choose_model, failed

_walk = component("kvviz_anatomy", "anatomy/anatomy.js", "kv-anatomy kv-live")
MOST = 12  # new tokens; a walk of more scenes is watched by nobody


def ask() -> LookSpec | None:
    """Model, prompt, layer and head; None, and why, where that can't be looked at."""
    take_over("a", {"model": one_of(*buildable()), "prompt": str, "layer": whole, "head": whole, "new": whole})
    one, two, three, four, five = st.columns([4, 6, 2, 2, 2], gap="small")
    with one:
        model = choose_model("a_model")
    design = design_of(models()[model].config)
    st.session_state.setdefault("a_prompt", PROMPT)
    prompt = two.text_input("Prompt", value=filled.value("a_prompt"), max_chars=200, key="a_prompt")
    layer = _number(three, "Layer", "a_layer", design.layers - 1)
    head = _number(four, "Query head", "a_head", design.heads - 1)
    new = _number(five, "New tokens", "a_new", MOST, start=5, least=2)
    write("a", {"model": model, "prompt": prompt, "layer": layer, "head": head, "new": new})
    try:
        return LookSpec("anatomy", model, prompt, new_tokens=new, layer=layer, head=_sent_with(head, design))
    except KvvizError as error:
        st.warning(plain(error))
        return None


def _number(place: Any, label: str, key: str, most: int, *, start: int = 0, least: int = 0) -> int:
    """A whole number; one from a link or from another model that is too large here becomes the largest."""
    st.session_state[key] = max(least, min(most, int(st.session_state.get(key, start))))
    return int(place.number_input(label, least, most, filled.value(key), key=key))


def _sent_with(head: int, design: Any) -> int:
    """The first head of the group that shares a KV head: looks at any of them are the same look."""
    size = design.heads // design.kv_heads
    return head // size * size


def walk(scheduler: Scheduler, spec: LookSpec) -> None:
    """The walk, once the look is there; whoever asks for the same look shares it."""
    try:
        work = asked_for(scheduler, spec)
    except KvvizError as error:
        st.warning(plain(error))
        return
    if failed(work):
        return
    shown = listing()
    stages = [asdict(stage) for stage in shown.stages]
    _walk(
        key="anatomy",
        data={
            "look": work.id,
            "head": st.session_state["a_head"],
            "assets": ASSETS_URL,
            "listing": {"lines": list(shown.lines), "start": shown.start, "stages": stages},
        },
    )
