"""Who is asking: one secret name per browser, the same in all its tabs and after a reload; whether it has signed in.

Signing in is Streamlit's own OpenID Connect, if `[auth]` stands in its secrets; without it nobody signs in.
"""

import json
from collections.abc import Mapping

import streamlit as st
from streamlit.errors import StreamlitSecretNotFoundError
from streamlit.web.server.starlette import starlette_websocket as of_streamlit

from kvviz.base.records import new_id
from kvviz.base.settings import settings
from kvviz.server.front_door import browser_of, is_loopback
from kvviz.server.jobs import may_change as may_be_changed
from kvviz.store.db.stored import Stored


def owner() -> str:
    """The browser's name, from the cookie that the front door sets; without a cookie, a name for this session."""
    return browser_of(st.context.cookies) or st.session_state.setdefault("owner", new_id())


def may_change(stored: Stored | None) -> bool:
    """Whether this browser may rename or delete a kept run.

    It may change its own, and on a server for this machine alone also one without an owner.
    """
    trusted = not settings().public and is_for_this_machine()
    return stored is not None and may_be_changed(stored.made_by, owner(), trusted=trusted)


def is_for_this_machine() -> bool:
    """Whether the server listens on a loopback address alone."""
    return is_loopback(st.get_option("server.address") or "0.0.0.0")


def has_provider() -> bool:
    """Whether this server has a provider to sign in with."""
    try:
        return "auth" in st.secrets
    except StreamlitSecretNotFoundError:  # there is no secrets.toml
        return False


def signed_in() -> bool:
    """Whether the page may be shown; until then a way to sign in stands in its place."""
    if not has_provider():
        return True
    if st.user.is_logged_in:
        with st.sidebar:
            st.text(str(st.user.get("name") or st.user.get("email") or "Signed in"))
            st.button("Sign out", on_click=st.logout, key="sign_out")
        return True
    st.title("kvviz", anchor=False)
    st.markdown("This server asks who you are before it shows anything.")
    st.button("Sign in", on_click=st.login, type="primary", key="sign_in")
    return False


def may_follow(cookies: Mapping[str, str]) -> bool:
    """Whether a request to kvviz's own routes comes from a browser that has signed in, by Streamlit's signed cookie."""
    if not has_provider():
        return True
    signed = of_streamlit._get_signed_cookie_with_chunks(dict(cookies), of_streamlit.USER_COOKIE_NAME)
    try:
        return signed is not None and json.loads(signed).get("is_logged_in") is True
    except (ValueError, AttributeError):
        return False
