"""Draws which keys each query of a forward may read."""

import plotly.graph_objects as go

from kvviz.charts import palette
from kvviz.charts.layout import INK, blank

HELD, OWN, MASKED, AGAIN = palette.KEPT, palette.NEW, palette.FREE, palette.AGAIN
HEAD, CELL = 56, 25  # pixels: above the cells, and of a cell at most
_COLOURS = (HELD, OWN, MASKED, AGAIN)
_WORDS = (
    "a new pair, its key cached",
    "a new pair, its key computed now",
    "masked: later than the query",
    "computed again",
)


def masked(new: int) -> int:
    """How many pairs of a query and a key are hidden in a forward of `new` tokens, whatever the cache holds."""
    return new * (new - 1) // 2


def mask_figure(held: int, new: int, most: int) -> go.Figure:
    """Draw a row for each query and a column for each key, of `held` cached tokens and `new` ones behind them.

    The rows of the cached tokens stay blank: they were asked in earlier steps. `most` is the number of tokens for which
    the figure is high enough: figures with the same one, if wide enough for their cells, have cells of the same size.
    """
    keys = range(held + new)
    z: list[list[int | None]] = [[None] * len(keys) for _ in range(held)]
    z += [[2 if key > query else 1 if key >= held else 0 for key in keys] for query in keys[held:]]
    return _square(z, most)


def uncached_figure(before: int, most: int) -> go.Figure:
    """Draw a decode step without a cache: the pairs of the `before` tokens once more, and the row of the new one."""
    tokens = range(before + 1)
    return _square([[2 if key > query else 1 if query == before else 3 for key in tokens] for query in tokens], most)


def encoder_figure(before: int, most: int) -> go.Figure:
    """Draw what an encoder computes when a token comes after `before` others: no mask, so every pair is computed anew.

    The new token's row and column are new; all other pairs were computed before, of vectors that are no longer right.
    """
    keys = range(before + 1)
    return _square([[1 if before == max(query, key) else 3 for key in keys] for query in keys], most)


def _square(z: list[list[int | None]], most: int) -> go.Figure:
    """Draw the pairs as cells of colours, as high as if there were `most` rows."""
    keys, blank_rows = list(range(len(z))), sum(row[0] is None for row in z)
    text = [["" if value is None else _WORDS[value] for value in row] for row in z]
    count = len(_COLOURS)
    steps = [(edge / count, colour) for i, colour in enumerate(_COLOURS) for edge in (i, i + 1)]
    look = {"colorscale": steps, "zmin": -0.5, "zmax": count - 0.5, "showscale": False, "xgap": 2, "ygap": 2}
    hover = "query of token %{y}, key of token %{x}:<br>%{text}<extra></extra>"
    figure = blank(
        "key of token",
        "query of token",
        height=HEAD + CELL * most,
        showlegend=False,
        margin={"l": 4, "r": 4, "t": 4, "b": 4},
    )
    figure.add_heatmap(x=keys, y=keys, z=z, text=text, hoverongaps=False, hovertemplate=hover, opacity=0.85, **look)
    if blank_rows:
        edge = {"color": MASKED, "width": 1, "dash": "dot"}
        figure.add_shape(type="rect", x0=-0.5, x1=len(z) - 0.5, y0=-0.5, y1=blank_rows - 0.55, line=edge)
        words, middle = "answered earlier", (len(z) - 1) / 2
        figure.add_annotation(
            text=words, x=middle, y=(blank_rows - 1) / 2, showarrow=False, font={"color": INK, "size": 13}
        )
    axis = {
        "tickvals": keys,
        "showgrid": False,
        "zeroline": False,
        "automargin": True,
        "title_standoff": 18,
        "ticks": "",
    }
    part, ends = len(z) / most, [-0.5, len(z) - 0.5]
    figure.update_xaxes(range=ends, constrain="domain", constraintoward="left", side="top", **axis)
    down = {"domain": [1 - part, 1], "scaleanchor": "x", "constrain": "domain", "constraintoward": "top"}
    return figure.update_yaxes(range=ends[::-1], **down, **axis)
