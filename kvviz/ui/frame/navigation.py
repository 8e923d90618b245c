"""The pages in groups, by what one came for, in one row that is read from left to right."""

from collections.abc import Mapping, Sequence

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


def draw_navigation(shown: st.Page) -> None:
    """Draw the groups, each with its name above its pages.

    They are one element: with each click, Streamlit's frontend goes through all elements of a page several times.
    """
    groups = "".join(_group(*group, shown) for group in GROUPS.items())
    st.container(key="nav").html(f'<nav class="kv-nav" aria-label="Pages">{groups}</nav>')


def _group(title: str, names: Sequence[str], shown: st.Page) -> str:
    links = "".join(_link(name, current=name == (shown.url_path or FIRST)) for name in names)
    return f'<div role="group" aria-label="{title}"><small>{title}</small>{links}</div>'


def _link(name: str, *, current: bool) -> str:
    mark = ' aria-current="page"' if current else ""
    return f'<a href="{"." if name == FIRST else name}"{mark}>{TEXTS[name]["navigation"]}</a>'


def lead_old_links_on(page: st.Page, pages: Mapping[str, st.Page]) -> None:
    """Go to the live page with a link that asks the first page for what the live page shows: it was the first once."""
    if page == pages[FIRST] and link_names() & set(st.query_params):
        st.switch_page(pages["live"], query_params=dict(st.query_params))
