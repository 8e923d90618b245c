"""What the pages say about users' cache designs (KVVIZ_DESIGNS): which are left out, and why."""

import streamlit as st

from kvviz.caches.designs import LEFT_OUT
from kvviz.server.scheduler import Scheduler
from kvviz.ui.shared.plain import plain


def unloadable(scheduler: Scheduler) -> dict[str, str]:
    """The designs that the measuring process could not load, with the reason; none before it has said so."""
    return (scheduler.device or {}).get("left_out", {})


def say_left_out(scheduler: Scheduler) -> None:
    """Draw which files of the folder are left out, and why; nothing if none is."""
    reasons = [*LEFT_OUT.values(), *unloadable(scheduler).values()]
    if reasons:
        said = "\n".join(f"- {plain(reason)}" for reason in reasons)
        st.warning(f"Left out of your own designs (KVVIZ_DESIGNS):\n\n{said}\n\nMend them and start kvviz again.")
