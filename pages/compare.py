"""/compare: runs that were kept, laid over one another."""

import streamlit as st

from kvviz.ui.compare.compare import manage, overlaid, picked
from kvviz.ui.compare.share import share
from kvviz.ui.shared import verdict
from kvviz.ui.shared.stop_and_think import of_runs, think

st.title("Compare runs", anchor=False)
st.markdown(
    "Every comparison is kept. Lay runs over one another and look where the curves part: the time of each token, the "
    "time so far, the bytes of the cache, and how many times as fast one is at each step."
)

runs = picked()
manage(runs)
if runs:
    overlaid(runs)
    verdict.of_runs(runs)
share(runs)
think("compare", of_runs(runs))
