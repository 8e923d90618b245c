"""Which models a form offers, which one it starts with, and what the worker would refuse."""

import math
from collections.abc import Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvviz.base.errors import KvvizError
from kvviz.base.records import DTYPES, SPLIT
from kvviz.decoding.modes import check_modes
from kvviz.decoding.requirements import needs
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.limits import check_sizes
from kvviz.models.catalog.rows import ModelRow, models
from kvviz.models.sources import Source, beside_catalog, find_source, first_model
from kvviz.server.scheduler import Scheduler
from kvviz.ui.shared.form import Field, Form, one_of

WEIGHTS = {"auto": "Its own, where they are here", "random": "Random, in its true shape"}
SMALL = 200_000_000  # parameters: built from random weights in seconds


def decodable() -> list[str]:
    """The ids of the models that can write: the catalog's, and those put beside it."""
    return [*(row.id for row in models().values() if not row.has_encoder), *beside_catalog()]


@st.cache_data(show_spinner=False)
def small_models(mode: str) -> list[str]:
    """The catalog models that this mode can decode and that are small enough for a student's laptop."""
    small = [row for row in models().values() if row.params <= SMALL and not row.has_encoder]
    return [row.id for row in small if _can_decode(mode, row)]


def _can_decode(mode: str, row: ModelRow) -> bool:
    try:
        check_modes([mode], row.config)
    except KvvizError:
        return False
    return True


@st.cache_data(max_entries=512, show_spinner=False)
def positions(model: str) -> float:
    """How many tokens a model has positions for; infinity if that is not known here."""
    try:
        spec = find_source(model).spec
    except KvvizError:
        return math.inf
    return math.inf if spec is None or spec.context is None else spec.context


def title(model: str) -> str:
    """What a model is called; one beside the catalog by its id."""
    return models()[model].title if model in models() else model


def model_field(ids: Sequence[str], first: str = "") -> Field:
    """A form's choice among these models, and what it opens with: `first`, or the first of the catalog."""
    return Field(first or first_model(), one_of(*ids))


def measured_fields() -> dict[str, Field]:
    """The fields that every form of a measurement has."""
    return {
        "model": model_field(decodable()),
        "weights": Field("auto", one_of(*WEIGHTS)),
        "dtype": Field("float32", one_of(*DTYPES)),
    }


def choose_model(place: DeltaGenerator, form: Form, ids: Sequence[str]) -> str:
    """Choose one of these models."""
    return place.selectbox("Model", format_func=title, **form.choice("model", ids))


def choose_precision(form: Form) -> tuple[str, str]:
    """Choose a model's own weights or random ones, and the precision of weights and cache."""
    kinds = form.choice("weights", list(WEIGHTS))
    return (
        st.selectbox("Weights", format_func=WEIGHTS.__getitem__, **kinds),
        st.selectbox("Precision", **form.choice("dtype", DTYPES)),
    )


def choose_size(place: DeltaGenerator, label: str, form: Form, name: str, sizes: Sequence[int], *, most: float) -> int:
    """Choose one of the sizes that are allowed; a link's size between two of them becomes the smaller."""
    allowed = [size for size in sizes if size <= most] or [sizes[0]]
    form[name] = max((size for size in allowed if size <= form[name]), default=allowed[0])
    return place.selectbox(label, format_func=lambda size: f"{size:,}", **form.choice(name, allowed))


def accepted(scheduler: Scheduler, work: ComparisonSpec) -> Source:
    """The model of a work. Raises KvvizError, before anything is queued, for what the worker would refuse."""
    source = find_source(work.model, work.weights)
    check_sizes(work, scheduler.limits)
    device = scheduler.device_for(work.device)
    check_modes(work.modes, source.config, SPLIT if work.device == SPLIT else (device or {}).get("device"))
    if work.device != SPLIT and device is not None and source.params is not None and source.spec is not None:
        needs(source, work).check(device["total_bytes"], device["device_name"], scheduler.limits.memory_share)
    return source
