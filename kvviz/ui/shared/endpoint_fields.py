"""The fields of a server that is asked: its address, its model, its key."""

from typing import Any

import streamlit as st

from kvviz.base.settings import settings
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.form import Form


def endpoint_fields(form: Form, prefix: str = "") -> str | None:
    """Draw the fields `endpoint`, `endpoint_model` and `kv_events` of a form; return the key, which no field holds.

    They are drawn into a row of the page's.
    """
    texts = TEXTS["live"]

    def take() -> None:
        form["endpoint"] = st.session_state[f"{prefix}known_endpoint"] or ""

    example = "http://localhost:8000/v1"
    st.text_input("Endpoint", placeholder=example, help=texts["endpoint"], width=260, **form.value("endpoint"))
    if known := [one for one in settings().endpoints if one.startswith("http")]:
        pills: dict[str, Any] = {"key": f"{prefix}known_endpoint", "on_change": take, "wrap": True}
        st.pills("Known endpoints", known, label_visibility="collapsed", **pills)
    if not form["endpoint"].strip():
        return None
    published = "tcp://localhost:5557"
    st.text_input("Its model", placeholder="its only one", width=160, **form.value("endpoint_model"))
    hidden: dict[str, Any] = {"type": "password", "autocomplete": "off", "key": f"{prefix}endpoint_key", "width": 160}
    key = st.text_input("Its key", help=texts["endpoint_key"], max_chars=500, **hidden).strip() or None
    more: dict[str, Any] = {"help": texts["kv_events"], "width": 200, **form.value("kv_events")}
    st.text_input("Its KV events", placeholder=published, **more)
    return key
