"""The way into the tour, and its stops as a list."""

import streamlit as st

from kvviz.ui.folders import PAGES, SITE, SITE_URL
from kvviz.ui.frame.tour import STOPS, Stop, last_stop, read_stop


def way_on() -> None:
    """Draw the way into the tour, or on to where the visitor was last."""
    came = read_stop(st.query_params.get("stop"))
    if came is not None:
        st.session_state.tour_at = str(came.number)
    at = last_stop()
    begun = "tour_at" in st.session_state
    with st.container(key="tour_begin"):
        _link(at, f"Go on with stop {at.number}" if begun else "Begin the tour")


def stops() -> None:
    """Draw all stops, each a way in."""
    st.header("Six stops to understand it", anchor="tour")
    with st.container(key="tour_stops"):
        for row in (STOPS[:3], STOPS[3:]):
            for place, stop in zip(st.columns(len(row), gap="medium"), row, strict=True):
                with place.container(border=True, height="stretch"):
                    _link(stop, f":primary[**{stop.number} · {stop.title}**]")
                    st.markdown(stop.say)


def documentation() -> None:
    """Draw the way to the documentation, if it was built."""
    if SITE.is_dir():
        st.markdown(
            f"[The documentation]({SITE_URL}/): how it is measured, how we know, every command, running a class."
        )


def _link(stop: Stop, label: str) -> None:
    st.page_link(PAGES / f"{stop.page}.py", label=label, icon=":material/arrow_forward:", query_params=stop.link)
