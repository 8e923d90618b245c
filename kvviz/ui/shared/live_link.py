"""A link that fills the live page's form: /live?model=…&modes=concat,paged&prompt=…, for another page to point at."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import streamlit as st

from kvviz.decoding.modes import MODES
from kvviz.experiments.comparison.spec import ATTENTION
from kvviz.ui.live.form import FIRST_MODES
from kvviz.ui.shared import links
from kvviz.ui.shared.links import Read, one_of, whole
from kvviz.ui.shared.model_choice import decodable

LONGEST = 4_000  # characters of a prompt in an address


def watched() -> str | None:
    """The comparison that the address names; a link's form is filled in and leaves the address: it is the viewer's."""
    came = links.arrived("live")
    _take_form(came or {})
    return links.named("live", "comparison", came)


def _take_form(came: Mapping[str, str]) -> None:
    """Fill the form from a link; nonsense counts as not said."""
    for name, read in fields().items():
        if name in came:
            with suppress(ValueError):
                st.session_state.update(_widgets(name, read(came[name])))


def _widgets(name: str, value: Any) -> dict[str, Any]:
    """What the form's widgets hold then: the modes have two places."""
    if name != "modes":
        return {name: value}
    return {
        "modes": [mode for mode in FIRST_MODES if mode in value],
        "more_modes": [mode for mode in MODES if mode in value and mode not in FIRST_MODES],
    }


def fields() -> Mapping[str, Read]:
    """What such a link may say, and how it is read."""
    return {
        "model": one_of(*decodable()),
        "prompt": _prompt,
        "modes": _modes,
        "new_tokens": _new_tokens,
        "attn": one_of(*ATTENTION),
        "batch": _batch,
    }


def _prompt(text: str) -> str:
    if not text.strip() or len(text) > LONGEST:
        raise ValueError(text)
    return text


def _modes(text: str) -> list[str]:
    names = [name for name in text.split(",") if name in MODES]
    if not names:
        raise ValueError(text)
    return names


def _new_tokens(text: str) -> int:
    """A step of the slider."""
    return min(512, max(8, whole(text) // 8 * 8))


def _batch(text: str) -> int:
    return min(64, max(1, whole(text)))


def form(**fields: Any) -> dict[str, str]:
    """The address's fields for a form filled like this."""
    return {name: ",".join(value) if name == "modes" else str(value) for name, value in fields.items()}
