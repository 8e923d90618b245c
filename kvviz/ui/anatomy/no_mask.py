"""Why a cached decode step needs no triangle mask: the pairs of queries and keys of three forwards."""

import streamlit as st

from kvviz.charts.masks import HELD, MASKED, OWN, mask_figure, masked
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.plots import colour_key, plot, shades

PROMPT, CHUNK = 5, 3  # tokens of the prompt, and of a chunk that comes after it
FORWARDS = {"Prefill": (0, PROMPT), "Decode step": (PROMPT, 1), "A chunk of new tokens": (PROMPT, CHUNK)}


def no_mask() -> None:
    """Draw what each query may read in a prefill, a decode step and a chunk."""
    st.markdown(TEXTS["anatomy"]["no_mask"])
    colour_key(shades(("a cached key", HELD), ("a key of this forward", OWN), ("masked: later than its query", MASKED)))
    for column, (title, (held, new)) in zip(st.columns(len(FORWARDS), gap="large"), FORWARDS.items(), strict=True):
        pairs, hidden = new * (held + new), masked(new)
        told = f"{hidden} of {pairs} pairs are masked" if hidden else f"all {pairs} pairs are read, none is masked"
        plot(mask_figure(held, new), column, claim=f"{title}: {told}", config={"displayModeBar": False}, key=f"n_{new}")
