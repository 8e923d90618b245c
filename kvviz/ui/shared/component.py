"""How our own components reach a page: a stub that loads their script from our routes, styles not isolated."""

from typing import Any

import streamlit as st

from kvviz.ui.folders import ASSETS_URL


def component(name: str, script: str, classes: str) -> Any:
    """A component whose `script` (a file of the assets) has `mount`, in an element of these classes."""
    stub = f"""
export default function (component) {{
  let cleanup = null
  let gone = false
  import(new URL("{ASSETS_URL}/{script}", location.origin).href).then((module) => {{
    if (!gone) cleanup = module.mount(component)
  }})
  return () => {{
    gone = true
    if (cleanup) cleanup()
  }}
}}
"""
    html = f'<div class="{classes}" data-testid="{classes.split()[0]}"></div>'
    return st.components.v2.component(name, html=html, js=stub, isolate_styles=False)
