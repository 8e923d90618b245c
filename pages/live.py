"""/live: a real model decodes without and with its cache, and everyone watches."""

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.server.scheduler import scheduler
from kvviz.ui.live.component import known_over, live_view, open_recording
from kvviz.ui.live.form import choose, in_words
from kvviz.ui.shared import links, verdict
from kvviz.ui.shared.live_link import watched
from kvviz.ui.shared.plain import plain
from kvviz.ui.shared.session import owner
from kvviz.ui.shared.stop_and_think import of_live, think

st.title("Watch the KV cache work", anchor=False)
st.markdown(
    "The same model writes the same text in two ways. **Without a cache** it reads everything again for every new "
    "token; **with its KV cache** it reads only the newest one and looks up the keys and values of the rest. "
    "Press Run and watch the two curves part."
)

comparison = watched()
over = known_over(comparison)
choice = choose(scheduler())
may_stop = scheduler().may_stop(comparison or "", owner())

run, stop, words = st.columns([1, 1, 6], vertical_alignment="center")
with run:
    pressed = st.button("Run", type="primary", disabled=choice.work is None, width="stretch", key="run")
with stop:
    halted = st.button("Stop", disabled=not may_stop, width="stretch", key="stop")
with words:
    if choice.problem:
        st.warning(plain(choice.problem))
    elif choice.seconds is not None:
        st.caption(f"Estimated from this device's measured rates: {in_words(choice.seconds)}")

if pressed:
    try:
        links.write("live", {"comparison": scheduler().submit(choice.work, owner())})
        st.rerun()
    except KvvizError as error:
        st.error(plain(error))
if halted and may_stop:
    scheduler().stop(comparison, owner())

live_view(comparison, over=over, new_tokens=choice.work.new_tokens if choice.work else None)
verdict.of_live(scheduler(), comparison)
open_recording()
think("live", of_live(scheduler(), comparison))
