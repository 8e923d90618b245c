"""/mistakes: every mistake of a first KV cache, really made, beside the loop that does it right."""

import streamlit as st

from kvviz.server.scheduler import scheduler
from kvviz.ui.frame.aloud import say_aloud
from kvviz.ui.mistakes.form import ask
from kvviz.ui.mistakes.results import show
from kvviz.ui.shared.experiment import inspected

st.title("Break it on purpose", anchor=False)
st.markdown(
    "A KV cache is a few lines of code, and most of them can be got wrong without a crash. Pick a mistake: the loop "
    "below really makes it, on real weights, beside the right one. Look for the first thing that a user would notice."
)

spec = ask()
if spec is not None:
    inspected(scheduler(), spec, show)
say_aloud(
    state="The state is the cache and the position together: both have to move on by exactly the tokens that were fed.",
    axis="Nearly all mistakes sit on the token axis: a position that stays behind, a mask that ignores the rows "
    "already held, a row too many, or rows of another text.",
    trade_off="A loop without a cache has no state to get wrong; the speed of a cache is paid for with a rule to "
    "keep, so I test the cached loop against the uncached one, and time it only then.",
)
