"""Draws which keys each query of a forward may read."""

import plotly.graph_objects as go

from kvviz.charts import palette
from kvviz.charts.layout import blank

HELD, OWN, MASKED = palette.KEPT, palette.NEW, palette.FREE
CELL = 34  # pixels


def masked(new: int) -> int:
    """How many pairs of a query and a key are hidden in a forward of `new` tokens, whatever the cache holds."""
    return new * (new - 1) // 2


def mask_figure(held: int, new: int) -> go.Figure:
    """Draw a row for each query and a column for each key, of `held` cached tokens and `new` ones behind them.

    The rows of the cached tokens stay blank: they were asked in earlier steps.
    """
    keys = range(1, held + new + 1)
    z = [[2 if key > query else 1 if key > held else 0 for key in keys] for query in range(held + 1, held + new + 1)]
    words = ("a cached key, read", "a key of this forward, read", "later than the query: masked")
    text = [[words[value] for value in row] for row in z]
    earlier = [[None] * len(keys)] * held
    steps = [(0, HELD), (1 / 3, HELD), (1 / 3, OWN), (2 / 3, OWN), (2 / 3, MASKED), (1, MASKED)]
    look = {"colorscale": steps, "zmin": -0.5, "zmax": 2.5, "showscale": False, "xgap": 2, "ygap": 2, "opacity": 0.85}
    places = [f"token {query}" for query in keys]
    hover = "query of %{y}, key of token %{x}:<br>%{text}<extra></extra>"
    figure = blank(
        "key of token", "", height=CELL * (held + new) + 96, showlegend=False, margin={"l": 4, "r": 4, "t": 4, "b": 4}
    )
    figure.add_heatmap(
        x=list(keys), y=places, z=[*earlier, *z], text=[*earlier, *text], hoverongaps=False, hovertemplate=hover, **look
    )
    figure.update_xaxes(dtick=1, showgrid=False)
    return figure.update_yaxes(autorange="reversed", showgrid=False, automargin=True)
