"""/compare: runs that were kept, laid over one another."""

import streamlit as st

from kvviz.ui.compare.form import compare_form, picked
from kvviz.ui.compare.manage import manage
from kvviz.ui.compare.results import overlaid
from kvviz.ui.compare.share import share
from kvviz.ui.frame.aloud import say_aloud
from kvviz.ui.shared import verdict
from kvviz.ui.shared.stop_and_think import of_runs, think

st.title("Compare runs", anchor=False)
st.markdown(
    "Every comparison is kept. Lay runs over one another and look where the curves part: the time of each token, the "
    "time so far, the bytes of the cache, and how many times as fast one is at each step."
)

form = compare_form()
runs = picked(form)
manage(form, runs)
if runs:
    overlaid(runs)
    verdict.of_runs(runs)
share(form, runs)
think("compare", of_runs(runs))
say_aloud(
    state="What differs between two runs of the same work is what each carries from step to step: nothing, or the "
    "keys and values of every token so far.",
    axis="I line them up on the new tokens: along that axis the work of an uncached step grows while it holds "
    "nothing, and the bytes of a cached run grow while its step stays almost the same.",
    trade_off="How many times as fast is a figure of one prompt length, batch and device, so I say those with it, "
    "and I trust a difference only where it is larger than the spread of the passes.",
)
