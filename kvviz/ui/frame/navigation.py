"""The pages in groups, by what one came for, in one row that is read from left to right."""

from collections.abc import Mapping

import streamlit as st

from kvviz.ui.folders import FIRST, PAGES
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.live.form import link_names

GROUPS = {
    "Understand": (FIRST, "live", "anatomy", "mistakes"),
    "Measure": ("compare", "sweep", "roofline", "caches", "serving"),
    "Calculate": ("memory", "cost"),
    "Learn and teach": ("quiz", "lesson", "glossary"),
}


def all_pages() -> dict[str, st.Page]:
    """Every page by its name, in the order of the navigation."""
    names = [name for group in GROUPS.values() for name in group]
    return {name: _page(name) for name in names}


def _page(name: str) -> st.Page:
    title = TEXTS[name]["navigation"]
    return st.Page(PAGES / f"{name}.py", title=title, url_path=name, default=name == FIRST)


def draw_navigation(pages: Mapping[str, st.Page]) -> None:
    """Draw the groups, each with its name above its pages."""
    with st.container(horizontal=True, gap=None, key="nav"):
        for group, names in GROUPS.items():
            with st.container(width="content", gap=None, key=f"nav_{names[0]}"):
                st.caption(group)
                with st.container(horizontal=True, width="content", wrap=False, gap=None):
                    for name in names:
                        st.page_link(pages[name], label=TEXTS[name]["navigation"])


def lead_old_links_on(page: st.Page, pages: Mapping[str, st.Page]) -> None:
    """Go to the live page with a link that asks the first page for what the live page shows: it was the first once."""
    if page == pages[FIRST] and link_names() & set(st.query_params):
        st.switch_page(pages["live"], query_params=dict(st.query_params))
