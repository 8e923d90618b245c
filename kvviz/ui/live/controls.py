"""The live page's buttons: Run and Stop, with what the form comes to beside them."""

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.server.scheduler import Scheduler
from kvviz.ui.live.form import Choice, in_words
from kvviz.ui.shared.form import Address
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.session import owner


def run_or_stop(scheduler: Scheduler, choice: Choice, comparison: str | None, address: Address) -> None:
    """Queue what the form says and watch it; stop one's own."""
    may_stop = scheduler.may_stop(comparison or "", owner())
    run, stop, words = st.columns([1, 1, 6], vertical_alignment="center")
    pressed = run.button("Run", type="primary", disabled=choice.work is None, width="stretch", key="run")
    halted = stop.button("Stop", disabled=not may_stop, width="stretch", key="stop")
    if choice.problem:
        words.warning(plain(choice.problem))
    elif choice.seconds is not None:
        words.caption(f"Estimated from this device's measured rates: {in_words(choice.seconds)}")
    if pressed and choice.work is not None:
        try:
            address.write({"comparison": scheduler.submit(choice.work, owner())})
            st.rerun()
        except KvvizError as error:
            st.error(plain(error))
    if halted and may_stop and comparison:
        scheduler.stop(comparison, owner())
