"""Tabs of which only the open one is drawn: all at once they would keep the server and a browser busy for seconds."""

from collections.abc import Callable, Mapping, Sequence

import streamlit as st

AHEAD = '<div style="min-height: 36rem"></div>'  # room for what a tab shows as soon as it is opened


def draw_tabs(
    parts: Mapping[str, Callable[[], None]],
    key: str,
    default: str | None = None,
    groups: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Draw a tab for each part, and in the open one what belongs to it; over each of the `groups` of tabs its name."""
    if groups:
        st.html(f"<style>{_named(groups, key)}</style>")
    tabs = st.tabs(list(parts), key=key, default=default, on_change="rerun")
    for tab, draw in zip(tabs, parts.values(), strict=True):
        with tab:
            if tab.open:
                draw()
            else:
                st.html(AHEAD)


def _named(groups: Mapping[str, Sequence[str]], key: str) -> str:
    """Return the styles that write a group's name over its first tab, but not into what a screen reader calls that."""
    row, place = f'.st-key-{key} [role="tablist"]', 1
    styles = [f"{row} {{ padding-top: 1.6rem; }}"]
    for name, parts in groups.items():
        styles.append(f'{row} > :nth-child({place})::before {{ content: "{name}" / ""; }}')
        place += len(parts)
        styles.append(f"{row} > :nth-child({place}) {{ margin-left: 1.2rem; }}")
    return "".join(styles)
