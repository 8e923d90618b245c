"""Draws which query heads of a layer attend to which KV heads, below the KV heads that each could have of its own."""

from collections.abc import Sequence

import plotly.graph_objects as go

from kvviz.charts.palette import FREE, KEPT
from kvviz.models.layers import LayerSpec

OWN, QUERIES, KEPT_ROW = 2, 1, 0  # heights


def heads_figure(layer: LayerSpec, heads: int, held: str, own: str) -> go.Figure:
    """Draw a line from each query head to the KV head below it; in a latent layer, all heads share one latent row.

    `held` are the bytes of what is kept, as words. Where it is shared, an empty square above each query head stands for
    a KV head of its own; all of these would take the bytes `own`.
    """
    latent = layer.kind == "latent"
    kept = 1 if latent else layer.kv_heads
    size = heads // kept
    figure = go.Figure()
    rows = {KEPT_ROW: f"kept: {'latent' if latent else 'K, V'}<br>{held}", QUERIES: "query heads"}
    if kept < heads:
        rows[OWN] = f"if each had K, V<br>{own}"
        every = list(range(heads))
        figure.add_trace(_lines([(head, head) for head in every], QUERIES, OWN, "dot"))
        figure.add_trace(_dots(every, OWN, "square-open", FREE, "a KV head of its own, not kept", heads))
    for group in range(kept):
        members = range(group * size, (group + 1) * size)
        centre = (members[0] + members[-1]) / 2
        figure.add_trace(_lines([(head, centre) for head in members], QUERIES, KEPT_ROW))
        figure.add_trace(_dots(list(members), QUERIES, "circle", FREE, "query head %{x}", heads))
        word = "the latent row" if latent else f"KV head {group}"
        figure.add_trace(_dots([centre], KEPT_ROW, "square", KEPT, word, heads))
    top = max(rows)
    heights = {"range": [-0.35, top + 0.3], "tickvals": list(rows), "ticktext": list(rows.values())}
    heights |= {"tickfont": {"size": 14}, "showgrid": False, "zeroline": False}
    margin = {"t": 10, "b": 10, "l": 10, "r": 10}
    figure.update_layout(height=80 + 75 * top, showlegend=False, hovermode="closest", margin=margin)
    return figure.update_layout(xaxis={"visible": False, "range": [-0.8, heads - 0.2]}, yaxis=heights)


def _lines(pairs: Sequence[tuple[float, float]], start: float, end: float, dash: str = "solid") -> go.Scatter:
    x = [at for one, other in pairs for at in (one, other, None)]
    look = {"color": FREE, "width": 1, "dash": dash}
    return go.Scatter(x=x, y=[start, end, None] * len(pairs), mode="lines", line=look, hoverinfo="skip")


def _dots(x: Sequence[float], y: float, symbol: str, colour: str, words: str, heads: int) -> go.Scatter:
    # on a telephone some 220 pixels are left for all of them
    size = max(4, min(16, 220 // heads)) + (6 if symbol == "square" else 0)
    look = {"mode": "markers", "marker": {"symbol": symbol, "size": size, "color": colour}}
    return go.Scatter(x=x, y=[y] * len(x), hovertemplate=f"{words}<extra></extra>", name=words, **look)
