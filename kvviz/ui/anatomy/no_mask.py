"""Why a cached decode step needs no mask, and an encoder has no use for a cache: the pairs of five forwards."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvviz.charts.masks import AGAIN, HELD, MASKED, OWN, encoder_figure, mask_figure, masked, uncached_figure
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.plots import colour_key, drawn_once, plot, shades

PROMPT, CHUNK = 5, 3  # tokens of the prompt, and of a chunk that comes after it
ONE_MORE, MOST = PROMPT + 1, PROMPT + CHUNK  # tokens after a decode step, and of the widest figure
BESIDE = 4  # cells as wide as the axis beside a grid and the gap before the next one


def no_mask(bar: DeltaGenerator) -> None:
    """Draw what each query may read in a prefill, a decode step without and with a cache, a chunk, and an encoder."""
    told = TEXTS["anatomy"]["no_mask"]
    bar.caption(told["drawn"], width="content")
    st.header(told["title"], anchor=False)
    st.markdown(told["words"])
    new = ("new pair, its key cached", HELD), ("new pair, its key computed now", OWN)
    again = "pair computed again (encoder: the result changes after the first layer)"
    colour_key(shades(*new, (again, AGAIN), ("masked: key later than its query", MASKED)))
    forwards = (
        ("Prefill", PROMPT, PROMPT, masked(PROMPT), drawn_once(mask_figure, 0, PROMPT, MOST)),
        ("Decode step, no cache", ONE_MORE, ONE_MORE, masked(ONE_MORE), drawn_once(uncached_figure, PROMPT, MOST)),
        ("Decode step, KV cache", 1, ONE_MORE, masked(1), drawn_once(mask_figure, PROMPT, 1, MOST)),
        ("Several new tokens", CHUNK, MOST, masked(CHUNK), drawn_once(mask_figure, PROMPT, CHUNK, MOST)),
        ("Encoder, one more token", ONE_MORE, ONE_MORE, None, drawn_once(encoder_figure, PROMPT, MOST)),
    )
    columns = st.columns([keys + BESIDE for _, _, keys, *_ in forwards])
    for i, (column, (title, queries, keys, hidden, figure)) in enumerate(zip(columns, forwards, strict=True)):
        masks = "no mask" if hidden is None else f"{hidden or 'none'} masked"
        claim = f"{title}  \n{queries} × {keys} = {queries * keys} pairs, {masks}"
        together = ("masks", i, len(forwards))
        plot(figure, column, claim=claim, config={"displayModeBar": False}, key=f"n_{i}", together=together)
    st.markdown(told["encoder"])
