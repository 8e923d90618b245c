"""What the forms share: which models can be picked, sizes that the server allows, what the worker would refuse."""

from typing import Any

import streamlit as st

from kvviz.decoding.modes import check_modes
from kvviz.decoding.requirements import needs
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.limits import check_sizes
from kvviz.models.catalog.rows import models
from kvviz.models.sources import Source, beside_catalog, find_source
from kvviz.server.scheduler import Scheduler
from kvviz.ui.shared import filled

WEIGHTS = {"auto": "Its own, where they are here", "random": "Random, in its true shape"}


def decodable() -> list[str]:
    """The ids of the models that can write: the catalog's, and what was put beside it."""
    return [*(row.id for row in models().values() if not row.has_encoder), *beside_catalog()]


def title(model: str) -> str:
    """What a model is called; one beside the catalog by its id."""
    return models()[model].title if model in models() else model


def choose_weights(place: Any, key: str) -> str:
    """Whether the model's own weights or random ones."""
    kinds = list(WEIGHTS)
    return place.selectbox("Weights", kinds, filled.index(key, kinds), format_func=WEIGHTS.__getitem__, key=key)


def choose_size(place: Any, label: str, key: str, sizes: tuple[int, ...], *, most: int, usual: int) -> int:
    """One of the sizes that are allowed; one from elsewhere that is none becomes the next below."""
    allowed = [size for size in sizes if size <= most] or [sizes[0]]
    wanted = int(filled.value(key, usual))
    st.session_state[key] = max((size for size in allowed if size <= wanted), default=allowed[0])
    return place.selectbox(label, allowed, filled.index(key, allowed), format_func=lambda size: f"{size:,}", key=key)


def accepted(scheduler: Scheduler, work: ComparisonSpec) -> Source:
    """The model of a work. Raises KvvizError, before anything is queued, for what the worker would refuse."""
    source = find_source(work.model, work.weights)
    check_sizes(work, scheduler.limits)
    check_modes(work.modes, source.config, scheduler.device and scheduler.device.get("device"))
    if scheduler.device is not None and source.params is not None and source.spec is not None:
        size, device = scheduler.device["total_bytes"], scheduler.device["device_name"]
        needs(source, work).check(size, device, scheduler.limits.memory_share)
    return source


def weights_in_words(kind: str) -> str:
    """Where a model's numbers come from."""
    return {"random": "seeded random weights", "bundled": "its trained weights"}.get(kind, "its weights")
