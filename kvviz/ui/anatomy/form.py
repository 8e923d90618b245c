"""The form of the page: which layer is walked through, and the fields of every walk."""

from collections.abc import Callable
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvviz.experiments.architectures.spec import PROMPT
from kvviz.models.text import STORY
from kvviz.ui.shared.form import Field, Form, one_of, whole
from kvviz.ui.shared.model_choice import model_field, small_models

NEW = 5  # new tokens of the walk through attention, at first
FIRST = {"attention": "Attention", "masks": "Masks"}
OTHERS = {
    "latent": "Latent (MLA)",
    "delta": "Gated delta",
    "mamba": "Mamba-2",
    "indexer": "Sparse indexer",
    "shared": "Shared cache",
}
SCENES = {**FIRST, **OTHERS}


def choose() -> tuple[Form, DeltaGenerator]:
    """Draw the choice of a layer; return the form, whose field `scene` it is, and the bar in which it stands."""
    form = Form(
        "anatomy",
        "a_",
        scene=Field("attention", one_of(*SCENES), _unless("attention")),
        model=model_field(small_models("scratch")),
        prompt=Field(STORY, str),
        layer=Field(0, whole),
        head=Field(0, whole),
        new=Field(NEW, whole),
        text=Field(PROMPT, str, _unless(PROMPT)),
        steps=Field(6, whole, _unless(6)),
    )
    bar = st.container(horizontal=True, vertical_alignment="center")
    with bar:
        _which(form)
    return form, bar


def _which(form: Form) -> None:
    """Draw the choice of a layer: attention and its masks as buttons, the others in a box that names the chosen one."""

    def take(key: str) -> None:
        form["scene"] = st.session_state[key] or form["scene"]  # a second click on the chosen button leaves it chosen

    chosen = form["scene"]
    for key, names in (("a_first", FIRST), ("a_other", OTHERS)):
        st.session_state[key] = chosen if chosen in names else None
    named: dict[str, Any] = {"format_func": SCENES.__getitem__, "label_visibility": "collapsed", "on_change": take}
    st.segmented_control("Layer", list(FIRST), key="a_first", args=("a_first",), **named)
    at = list(OTHERS).index(chosen) if chosen in OTHERS else None
    box: dict[str, Any] = {"index": at, "placeholder": "Other designs", "key": "a_other", "width": 180}
    st.selectbox("Other designs", list(OTHERS), args=("a_other",), **box, **named)


def _unless(default: object) -> Callable[[object], str | None]:
    """How a field travels that stays out of the address at its default."""
    return lambda value: None if value == default else str(value)
