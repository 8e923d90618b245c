"""Why a cached decode step needs no mask, and an encoder has no use for a cache: the pairs of four forwards."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvviz.charts.masks import AGAIN, HELD, MASKED, OWN, encoder_figure, mask_figure, masked
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.plots import colour_key, plot, shades

PROMPT, CHUNK = 5, 3  # tokens of the prompt, and of a chunk that comes after it
MOST = PROMPT + CHUNK  # tokens of the widest figure
FORWARDS = {"Prefill": (0, PROMPT), "Decode step": (PROMPT, 1), "Several new tokens": (PROMPT, CHUNK)}


def no_mask(bar: DeltaGenerator) -> None:
    """Draw what each query may read in a prefill, a decode step and a chunk, and in an encoder without a mask."""
    told = TEXTS["anatomy"]["no_mask"]
    bar.caption(told["drawn"], width="content")
    st.header(told["title"], anchor=False)
    st.markdown(told["words"])
    key = ("a cached key", HELD), ("a new token's key", OWN), ("masked: later than its query", MASKED)
    colour_key(shades(*key, ("computed a second time", AGAIN)))
    *columns, last = st.columns(len(FORWARDS) + 1, gap="medium")
    for column, (title, (held, new)) in zip(columns, FORWARDS.items(), strict=True):
        figure = mask_figure(held, new, MOST)
        _draw(figure, column, title, new, held + new, f"{masked(new) or 'none'} masked", key=f"n_{new}")
    _draw(
        encoder_figure(PROMPT, MOST),
        last,
        "Encoder (BERT), one more token",
        PROMPT + 1,
        PROMPT + 1,
        "no mask",
        key="n_encoder",
    )
    st.markdown(told["encoder"])


def _draw(figure: object, place: DeltaGenerator, title: str, queries: int, keys: int, masks: str, *, key: str) -> None:
    """Draw a forward below its name and the number of its pairs."""
    pairs = f"${queries} \\times {keys} = {queries * keys}$ pairs, {masks}"
    plot(figure, place, claim=f"{title}  \n{pairs}", config={"displayModeBar": False}, key=key)
