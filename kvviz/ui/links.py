"""A page's choices in its address: taken over from a link on arrival, written back as they change."""

from collections.abc import Callable, Mapping
from typing import Any

import streamlit as st

Read = Callable[[str], Any]


def one_of(*allowed: str) -> Read:
    """Reads a choice; whatever is none raises ValueError."""

    def read(text: str) -> str:
        if text not in allowed:
            raise ValueError(text)
        return text

    return read


def whole(text: str) -> int:
    """Reads a whole number of at most four digits; whatever is none raises ValueError."""
    if not text.isascii() or not text.isdigit() or len(text) > 4:
        raise ValueError(text)
    return int(text)


def take_over(page: str, fields: Mapping[str, Read]) -> None:
    """Fill the widgets `page_field` from a link that this page did not write itself; nonsense counts as not said."""
    params = dict(st.query_params)
    if params == st.session_state.get(f"{page}_link"):
        return
    for name in fields.keys() & params.keys():
        try:
            st.session_state[f"{page}_{name}"] = fields[name](params[name])
        except ValueError:
            continue


def write(page: str, values: Mapping[str, Any]) -> None:
    """Put the choices into the address."""
    params = {name: str(value) for name, value in values.items()}
    st.session_state[f"{page}_link"] = params
    if dict(st.query_params) != params:
        st.query_params.from_dict(params)
