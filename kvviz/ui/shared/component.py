"""How our own components reach a page: a stub that loads their script from our routes, styles not isolated."""

from typing import Any

import streamlit as st

from kvviz.ui.folders import ASSETS, ASSETS_URL


def component(name: str, script: str, classes: str, *, room: str = "0") -> Any:
    """A component whose `script` (a file of the assets) has `mount`, in an element of these classes.

    `room` is the height, in CSS, that the element has before its script has drawn anything.
    """
    stub = (ASSETS / "shared" / "mount.js").read_text(encoding="utf-8").replace("SCRIPT", f"{ASSETS_URL}/{script}")
    html = f'<div class="{classes}" style="min-height: {room}" data-testid="{classes.split()[0]}"></div>'
    return st.components.v2.component(name, html=html, js=stub, isolate_styles=False)
