"""/roofline: a model's prefills and decode steps under this device's measured ceilings; where a step's time goes."""

import streamlit as st

from kvviz.server.scheduler import scheduler
from kvviz.ui.roofline.form import ask, expected, progress
from kvviz.ui.roofline.results import draw
from kvviz.ui.shared.experiment import measured

st.title("Under the roof of a device", anchor=False)
st.markdown(
    "A forward does arithmetic on bytes that it has to fetch. How many **FLOPs it does for each byte** decides which "
    "ceiling it meets: reading, the slanted roof, or arithmetic, the flat one. Measure a model, then look where a "
    "prefill lies and where a decode step does, and which way they move."
)

spec = ask(scheduler())
if spec is not None:
    found = measured(scheduler(), spec, key="r", words=expected(scheduler(), spec), progress=progress)
    if found is not None:
        draw(found)
