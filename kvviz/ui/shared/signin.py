"""Signing in with Streamlit's own OpenID Connect, if `[auth]` stands in its secrets; without it nobody signs in."""

import json
from collections.abc import Mapping

import streamlit as st
from streamlit.errors import StreamlitSecretNotFoundError
from streamlit.web.server.starlette import starlette_websocket as of_streamlit


def is_asked_for() -> bool:
    """Whether this server has a provider to sign in with."""
    try:
        return "auth" in st.secrets
    except StreamlitSecretNotFoundError:  # there is no secrets.toml
        return False


def signed_in() -> bool:
    """Whether the page may be shown; until then a way to sign in stands in its place."""
    if not is_asked_for():
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
    if not is_asked_for():
        return True
    signed = of_streamlit._get_signed_cookie_with_chunks(dict(cookies), of_streamlit.USER_COOKIE_NAME)
    try:
        return signed is not None and json.loads(signed).get("is_logged_in") is True
    except (ValueError, AttributeError):
        return False
