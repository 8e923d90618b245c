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
SCENES = {
    "attention": "Attention",
    "masks": "Masks",
    "latent": "Latent (MLA)",
    "delta": "Gated delta",
    "mamba": "Mamba-2",
    "indexer": "Sparse indexer",
    "shared": "Shared cache",
}


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
    options = form.choices("scene", list(SCENES))
    bar = st.container(horizontal=True, vertical_alignment="center")
    with bar:
        named: dict[str, Any] = {"format_func": SCENES.__getitem__, "label_visibility": "collapsed"}
        st.segmented_control("Layer", required=True, **named, **options)
    return form, bar


def _unless(default: object) -> Callable[[object], str | None]:
    """How a field travels that stays out of the address at its default."""
    return lambda value: None if value == default else str(value)
