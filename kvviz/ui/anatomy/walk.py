"""Two walks: with four letters, a line at a time, and through one attention layer, step by step, in the browser."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvviz.decoding.scratch.design import design_of
from kvviz.decoding.scratch.listing import listing
from kvviz.experiments.inside import letters as four_letters
from kvviz.experiments.inside.spec import AnatomySpec
from kvviz.models.catalog.rows import models
from kvviz.models.sources import find_source, weights_in_words
from kvviz.server.scheduler import Scheduler
from kvviz.ui.folders import ASSETS_URL
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.component import component
from kvviz.ui.shared.experiment import looked_at, requested
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.model_choice import choose_model, small_models, title
from kvviz.ui.shared.plain import errors_said

MOST_NEW = 12  # new tokens; nobody watches a walk of more scenes

_walk = component("kvviz_anatomy", "anatomy/anatomy.js", "kv-anatomy kv-live")


def walk(scheduler: Scheduler, form: Form, bar: DeltaGenerator) -> None:
    """Draw the form in the bar, and the walk as the chosen query head sees it.

    Whoever asks for the same inspection shares it.
    """
    spec, head = _ask(form, bar)
    work = requested(scheduler, spec) if spec is not None else None
    if spec is None or work is None:
        return
    data = {**looked_at(work, spec), "head": head, "assets": ASSETS_URL, "listing": listing().as_dict()}
    _walk(key="anatomy", on_head_change=_take_head, data=data)


def _ask(form: Form, bar: DeltaGenerator) -> tuple[AnatomySpec | None, int]:
    """Draw the form; returns what to inspect, None and the reason on the page if that can't be, and the query head."""
    design = design_of(models()[form["model"]].config)
    layers = form.within("layer", 0, design.layers - 1)
    weights = weights_in_words(find_source(form["model"]).weights)
    chosen = f"{title(form['model'])}, {weights}: layer {form['layer']}"
    with bar, st.popover(chosen, icon=":material/tune:", key="a_choices"):
        model = choose_model(st.container(), form, small_models("scratch"))
        prompt = st.text_input("Prompt", max_chars=200, **form.value("prompt"))
        layer = st.number_input("Layer", **layers)
        new = st.number_input("New tokens", **form.within("new", 2, MOST_NEW))
    head = form["head"] = min(form["head"], design.heads - 1)  # the walk's own buttons choose it
    form.write()
    group = design.heads // design.kv_heads
    with errors_said():  # the first head of the group that shares a KV head: all of the group are one inspection
        return AnatomySpec(model, prompt, new_tokens=new, layer=layer, head=head // group * group), head
    return None, head


def _take_head() -> None:
    """Take the head that was asked for in the walk."""
    asked = st.session_state.anatomy.head
    if asked is not None:
        st.session_state.a_head = asked


def letters() -> None:
    """Draw Back and Next through the lines, and the cache as boxes."""
    moments = list(four_letters.walk())
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
        st.caption(TEXTS["anatomy"]["letters_end"])


def _move(by: int) -> None:
    st.session_state.l_at += by
