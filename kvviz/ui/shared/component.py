"""How our own components reach a page: a stub that loads their script from our routes, styles not isolated."""

from typing import Any

import streamlit as st

from kvviz.ui.folders import ASSETS, ASSETS_URL


def component(name: str, script: str, classes: str) -> Any:
    """A component whose `script` (a file of the assets) has `mount`, in an element of these classes.

    The room that it has before its script has drawn anything is in frame/pages.css, by its key.
    """
    stub = (ASSETS / "shared" / "mount.js").read_text(encoding="utf-8").replace("SCRIPT", f"{ASSETS_URL}/{script}")
    html = f'<div class="{classes}" data-testid="{classes.split()[0]}"></div>'
    return st.components.v2.component(name, html=html, js=stub, isolate_styles=False)
