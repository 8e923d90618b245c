"""The room in the frame of every page: opened, joined by a link, and followed from page to page."""

from collections.abc import Mapping

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.server.rooms.rooms import FRAME_PARAMETERS, Place, read_place
from kvviz.ui.folders import ASSETS_URL, FIRST
from kvviz.ui.shared.component import component

_component = component("kvviz_room", "room/room.js", "kv-roomplace")


def follow(pages: Mapping[str, st.Page]) -> None:
    """Mount the room, and go to the page that its leader has gone to."""
    data = {"assets": ASSETS_URL, "first": FIRST, "passed_over": list(FRAME_PARAMETERS), "join": asked_to_join()}
    state = _component(key="room", data=data, on_go_change=lambda: None)
    place = place_of(state.go)
    if place is not None and place.page in pages:
        st.switch_page(pages[place.page], query_params=place.query)


def asked_to_join() -> dict[str, object] | None:
    """The room that a link (`?room=CODE`) asked for, numbered, so that the page joins it once.

    It leaves the address: from there on the browser's tab remembers it, and pages keep their addresses to themselves.
    """
    if "room" in st.query_params:
        number = (st.session_state.get("room_asked") or {"number": 0})["number"] + 1
        st.session_state.room_asked = {"code": st.query_params.pop("room")[:40], "number": number}
    return st.session_state.get("room_asked")


def place_of(asked: Mapping[str, object] | None) -> Place | None:
    """Where the room asks the page to go; None if it asks nothing, or names no place."""
    try:
        return read_place(dict(asked)) if asked else None
    except (KvvizError, TypeError, ValueError):
        return None
