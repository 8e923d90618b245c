"""A page's choices in its address: taken over from a link on arrival, written back as they change."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import streamlit as st

Read = Callable[[str], Any]
MOST = 20  # addresses that a browser may still be carrying


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


def arrived(page: str) -> dict[str, str] | None:
    """The address, where this page did not write it itself: a fresh visit, a room, the browser's back button.

    None where it did; and where the page has since written another one, but the browser asked before that reached
    it, as it does when something on the page ends in the moment of a click.
    """
    params, written = dict(st.query_params), st.session_state.get(_key(page))
    if written is None:
        return params
    if params == written["last"]:
        written["seen"] += 1
        if written["seen"] > 1:  # the first time may be the page's own rerun, the second is the browser's
            written["left"].clear()
        return None
    return None if params in written["left"] else params


def last(page: str) -> dict[str, str]:
    """The address that this page wrote last; empty before it wrote any."""
    return dict(st.session_state.get(_key(page), {"last": {}})["last"])


def take_over(page: str, fields: Mapping[str, Read]) -> None:
    """Fill the widgets `page_field` from a link, or, back from another page, from this page's own last address.

    Nonsense counts as not said.
    """
    came = arrived(page)
    params = came or last(page)
    for name in fields.keys() & params.keys():
        widget = f"{page}_{name}"
        if not came and widget in st.session_state:
            continue
        with suppress(ValueError):
            st.session_state[widget] = fields[name](params[name])


def named(page: str, field: str, came: Mapping[str, str] | None) -> str | None:
    """What the address names in this field, `came` being what arrived there; nothing else stays in the address."""
    found = (last(page) if came is None else came).get(field)
    write(page, {field: found} if found else {})
    return found


def write(page: str, values: Mapping[str, Any]) -> None:
    """Put the choices into the address; what stood there does not count as a link from then on."""
    params = {name: str(value) for name, value in values.items()}
    written = st.session_state.setdefault(_key(page), {"last": None, "left": [], "seen": 0})
    if params != written["last"]:
        written.update(last=params, seen=0, left=[left for left in written["left"] if left != params])
    before = dict(st.query_params)
    if before == params:
        return
    if before not in written["left"]:
        written["left"] = [*written["left"], before][-MOST:]
    st.query_params.from_dict(params)


def _key(page: str) -> str:
    return f"address_{page}"
