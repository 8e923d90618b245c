"""/roofline: a model's prefills and decode steps under this device's measured ceilings; where a step's time goes."""

import streamlit as st

from kvviz.server.scheduler import scheduler
from kvviz.ui.frame.aloud import say_aloud
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
say_aloud(
    state="The state decides the bytes: a decode step reads every weight and the whole cache for one token of each "
    "sequence, and does about one multiply-add for each number read.",
    axis="A longer prompt moves a prefill to more FLOPs per byte, a larger batch moves a decode step there, and a "
    "longer context hardly moves it, because the cache grows along with the work done on it.",
    trade_off="The cache moves a step from arithmetic to memory traffic; a batch buys some of the arithmetic back, "
    "until the caches of all sequences are more bytes than the weights they share.",
)
