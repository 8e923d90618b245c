"""The fields of a server that is asked: its address, its model, its key."""

from typing import Any

import streamlit as st

from kvviz.base.settings import settings
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.form import Form


def endpoint_fields(form: Form, prefix: str = "") -> str | None:
    """Draw the fields `endpoint` and `endpoint_model` of a form; return the server's key, which no field holds."""
    texts = TEXTS["live"]

    def take() -> None:
        form["endpoint"] = st.session_state[f"{prefix}known_endpoint"] or ""

    where, model, key = st.columns([2, 1, 1])
    example = "http://localhost:8000/v1"
    where.text_input("Endpoint", placeholder=example, help=texts["endpoint"], **form.value("endpoint"))
    if known := settings().endpoints:
        pills: dict[str, Any] = {"key": f"{prefix}known_endpoint", "on_change": take, "wrap": True}
        st.pills("Known endpoints", known, label_visibility="collapsed", **pills)
    if not form["endpoint"].strip():
        return None
    model.text_input("Its model", placeholder="its only one", **form.value("endpoint_model"))
    hidden: dict[str, Any] = {"type": "password", "autocomplete": "off", "key": f"{prefix}endpoint_key"}
    return key.text_input("Its key", help=texts["endpoint_key"], max_chars=500, **hidden).strip() or None
