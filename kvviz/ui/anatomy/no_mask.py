"""Why a cached decode step needs no mask, and an encoder has no use for a cache: the pairs of five forwards."""

from html import escape
from pathlib import Path
from typing import NamedTuple

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvviz.charts import palette
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.plots import colour_key, shades

PROMPT, CHUNK = 5, 3  # tokens of the prompt, and of a chunk that comes after it
HELD, OWN, MASKED, AGAIN = (  # a pair of a query and a key: its words in the key to the colours, and its colour
    ("new pair, its key cached", palette.KEPT),
    ("new pair, its key computed now", palette.NEW),
    ("masked: key later than its query", palette.FREE),
    ("pair computed again (encoder: the result changes after the first layer)", palette.AGAIN),
)
Pair = tuple[str, str]


class Forward(NamedTuple):
    """What one forward computes: a row of pairs for each of its queries, behind rows that were `answered` earlier."""

    title: str
    rows: list[list[Pair]]
    answered: int = 0
    masks: bool = True


def with_cache(title: str, held: int, new: int) -> Forward:
    """A forward of `new` tokens behind `held` cached ones: a row for each query, a column for each key."""
    keys = range(held + new)
    rows = [[MASKED if key > query else OWN if key >= held else HELD for key in keys] for query in keys[held:]]
    return Forward(title, rows, held)


def without_cache(title: str, before: int) -> Forward:
    """A decode step without a cache: the pairs of the `before` tokens once more, and the row of the new one."""
    tokens = range(before + 1)
    rows = [[MASKED if key > query else OWN if query == before else AGAIN for key in tokens] for query in tokens]
    return Forward(title, rows)


def encoder(title: str, before: int) -> Forward:
    """What an encoder computes when a token comes after `before` others: no mask, so every pair is computed anew.

    The new token's row and column are new; all other pairs were computed before, of vectors that are no longer right.
    """
    keys = range(before + 1)
    rows = [[OWN if before == max(query, key) else AGAIN for key in keys] for query in keys]
    return Forward(title, rows, masks=False)


FORWARDS = (
    with_cache("Prefill", 0, PROMPT),
    without_cache("Decode step, no cache", PROMPT),
    with_cache("Decode step, KV cache", PROMPT, 1),
    with_cache("Several new tokens", PROMPT, CHUNK),
    encoder("Encoder, one more token", PROMPT),
)


def no_mask(bar: DeltaGenerator) -> None:
    """Draw what each query may read in a prefill, a decode step without and with a cache, a chunk, and an encoder."""
    told = TEXTS["anatomy"]["no_mask"]
    bar.caption(told["drawn"], width="content")
    st.header(told["title"], anchor=False)
    st.markdown(told["words"])
    colour_key(shades(HELD, OWN, AGAIN, MASKED))
    st.html(Path(__file__).with_suffix(".css"))
    st.html(f'<div class="kv-masks">{"".join(map(_table, FORWARDS))}</div>')
    st.markdown(told["encoder"])


def says(forward: Forward) -> str:
    """Count the pairs of a forward, and those that its mask hides."""
    queries, keys = len(forward.rows), len(forward.rows[0])
    hidden = sum(row.count(MASKED) for row in forward.rows)
    masks = f"{hidden or 'none'} masked" if forward.masks else "no mask"
    return f"{queries} × {keys} = {queries * keys} pairs, {masks}"


def _table(forward: Forward) -> str:
    """A forward as a table whose cells are coloured; the words in them are for readers who hear the page."""
    count = len(forward.rows[0])
    keys = "".join(f'<th scope="col">{key}</th>' for key in range(count))
    earlier = f'<td class="kv-earlier" rowspan="{forward.answered}" colspan="{count}">answered earlier</td>'
    cells = [earlier, *[""] * (forward.answered - 1)] if forward.answered else []
    for query, row in enumerate(forward.rows, forward.answered):
        cells.append("".join(_cell(query, key, pair) for key, pair in enumerate(row)))
    side = f'<th class="kv-side" scope="rowgroup" rowspan="{len(cells)}"><span>query of token</span></th>'
    rows = "".join(
        f'<tr>{side if not query else ""}<th scope="row">{query}</th>{row}</tr>' for query, row in enumerate(cells)
    )
    return (
        f'<table><caption class="kv-words">{escape(forward.title)}<br>{says(forward)}</caption>'
        f'<tr><td colspan="2"></td><th scope="colgroup" colspan="{count}">key of token</th></tr>'
        f'<tr><td colspan="2"></td>{keys}</tr>{rows}</table>'
    )


def _cell(query: int, key: int, pair: Pair) -> str:
    ((words, (light, dark)),) = shades(pair).items()
    where = f"query of token {query}, key of token {key}: {words}"
    return f'<td class="kv-pair" style="background:light-dark({light},{dark})" title="{where}">{words}</td>'
