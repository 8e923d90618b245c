"""/live: a real model decodes without and with its cache, and everyone watches."""

import streamlit as st

from kvviz.server.scheduler import scheduler
from kvviz.ui.frame.aloud import say_aloud
from kvviz.ui.live.component import known_over, live_view, open_recording
from kvviz.ui.live.form import choose, live_form, say_what_it_takes
from kvviz.ui.shared import verdict
from kvviz.ui.shared.experiment import run_or_stop
from kvviz.ui.shared.stop_and_think import of_live, think

st.title("Watch the KV cache work", anchor=False)
st.markdown(
    "The same model writes the same text in two ways. **Without a cache** it reads everything again for every new "
    "token; **with its KV cache** it reads only the newest one and looks up the keys and values of the rest. "
    "Press Run and watch the two curves part."
)

form = live_form()
came = form.address.arrived()
form.take_over(came)
comparison = form.address.named("comparison", came)
over = known_over(scheduler(), comparison)

choice = choose(form, scheduler())
beside = run_or_stop(scheduler(), choice.work, comparison, form.address, "comparison")
say_what_it_takes(beside, choice)
live_view(comparison, over=over, new_tokens=form["new_tokens"] if choice.work else None)
verdict.of_live(scheduler(), comparison)
open_recording(scheduler(), form.address)
think("live", of_live(scheduler(), comparison))
say_aloud(
    state="The state is the KV cache: prefill fills it with one key and one value per prompt token, in every layer "
    "and KV head, and each decode step appends one more.",
    axis="It grows on the token axis, the third of [batch, KV heads, tokens, head size], by one for each new "
    "token; in a layer with a window only until the window is full.",
    trade_off="It trades memory for work: the tokens stay the same, a step reads one token instead of all of them, "
    "and the keys and values of all of them have to stay in memory.",
)
