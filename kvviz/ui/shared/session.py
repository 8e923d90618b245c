"""Who is asking: one secret name per browser, the same in all its tabs and after a reload."""

import streamlit as st

from kvviz.base.records import new_id
from kvviz.base.settings import settings
from kvviz.server.front_door import browser_of
from kvviz.server.jobs import may_change as may_be_changed
from kvviz.store.db.stored import Stored

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def owner() -> str:
    """The browser's name, from the cookie that the front door gives; one per session where there is no cookie."""
    return browser_of(st.context.cookies) or st.session_state.setdefault("owner", new_id())


def may_change(stored: Stored | None) -> bool:
    """Whether this browser may name or delete a kept run: its own; and nobody's on a server for this machine alone."""
    trusted = not settings().public and st.get_option("server.address") in LOOPBACK
    return stored is not None and may_be_changed(stored.made_by, owner(), trusted=trusted)
