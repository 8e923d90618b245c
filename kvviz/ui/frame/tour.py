"""The guided tour (`tour.toml`): its stop is in the address, `?tour=3`, on whatever page it has led to."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import streamlit as st

from kvviz.ui.folders import PAGES


@dataclass(frozen=True)
class Stop:
    """A page, set up by its query: what the visitor is told there, what to press and what to notice."""

    number: int
    title: str
    page: str
    say: str
    press: str
    notice: str
    opens: str = ""
    query: dict[str, str] = field(default_factory=dict)

    @property
    def link(self) -> dict[str, str]:
        """The query that leads to it."""
        return {**self.query, "tour": str(self.number)}


_ROWS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["stops"]
STOPS = tuple(Stop(number, **row) for number, row in enumerate(_ROWS, 1))


def read_stop(text: str | None) -> Stop | None:
    """The stop of this number; None for a number without a stop."""
    return next((stop for stop in STOPS if text == str(stop.number)), None)


def here() -> Stop | None:
    """The stop at which the visitor is, on the page of that stop or on another one."""
    return read_stop(st.query_params.get("tour"))


def opens(part: str) -> bool:
    """Whether the tour's stop wants this part of the page open."""
    stop = here()
    return stop is not None and stop.opens == part


def last_stop() -> Stop:
    """Where this visitor was last; the first stop for who comes for the first time."""
    return read_stop(st.session_state.get("tour_at")) or STOPS[0]


def draw_bar() -> None:
    """Draw the stop and the ways on, if the visitor is on the tour."""
    stop = here()
    if stop is None:
        return
    if st.session_state.get("tour_at") != str(stop.number):  # a link to the same page writes no address
        st.session_state.tour_at = st.query_params["tour"] = str(stop.number)
    with st.container(horizontal=True, vertical_alignment="center", key="tour_bar"):
        st.markdown(
            f"**{stop.number} of {len(STOPS)} · {stop.title}.** {stop.say}  \n"
            f":material/touch_app: {stop.press} :material/visibility: {stop.notice}"
        )
        with st.container(horizontal=True, width="content", wrap=False, gap="small", key="tour_ways"):
            if stop.number > 1:
                _way("Back", STOPS[stop.number - 2], stop)
            if stop.number < len(STOPS):
                _way("Next", STOPS[stop.number], stop)
            else:
                st.page_link(PAGES / "quiz.py", label="Check yourself", icon=":material/quiz:")
            st.page_link(PAGES / "start.py", label="Leave", query_params={"stop": str(stop.number)})


def _way(label: str, to: Stop, at: Stop) -> None:
    """A link to the next stop; on the same page what stands there stays."""
    shown = dict(st.query_params) if to.page == at.page else {}
    st.page_link(PAGES / f"{to.page}.py", label=label, query_params={**shown, **to.link}, help=to.title)
