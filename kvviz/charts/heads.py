"""Draws which query heads of a layer attend to which KV heads."""

import plotly.graph_objects as go

from kvviz.models.layers import LayerSpec

# Of up to eight groups; of more, two hues in turn tell neighbours apart.
HUES = ("#0072B2", "#D55E00", "#00916E", "#9A4B7D", "#B8860B", "#4B5563", "#7A6FBE", "#9C5518")


def heads_figure(layer: LayerSpec, heads: int) -> go.Figure:
    """Draw a line from each query head to the KV head below it; in a latent layer, all heads share one latent row."""
    kept = 1 if layer.kind == "latent" else layer.kv_heads
    size = heads // kept
    figure = go.Figure()
    hues = HUES if kept <= len(HUES) else HUES[:2]
    for group in range(kept):
        members = range(group * size, (group + 1) * size)
        colour = hues[group % len(hues)]
        centre = (members[0] + members[-1]) / 2
        x, y = [], []
        for head in members:
            x += [head, centre, None]
            y += [1, 0, None]
        figure.add_trace(go.Scatter(x=x, y=y, mode="lines", line={"color": colour, "width": 1}, hoverinfo="skip"))
        figure.add_trace(_dots(list(members), 1, "circle", colour, "query head %{x}", heads))
        word = "the latent row" if layer.kind == "latent" else f"KV head {group}"
        figure.add_trace(_dots([centre], 0, "square", colour, word, heads))
    ends = ["kept: latent" if layer.kind == "latent" else "kept: K, V", "query heads"]
    heights = {"range": [-0.35, 1.3], "tickvals": [0, 1], "ticktext": ends, "tickfont": {"size": 14}}
    heights |= {"showgrid": False, "zeroline": False}
    figure.update_layout(height=230, showlegend=False, hovermode="closest", margin={"t": 10, "b": 10, "l": 10, "r": 10})
    return figure.update_layout(xaxis={"visible": False, "range": [-0.8, heads - 0.2]}, yaxis=heights)


def _dots(x: list[float], y: float, symbol: str, colour: str, words: str, heads: int) -> go.Scatter:
    # on a telephone some 220 pixels are left for all of them
    size = max(4, min(16, 220 // heads)) + (6 if symbol == "square" else 0)
    look = {"mode": "markers", "marker": {"symbol": symbol, "size": size, "color": colour}}
    return go.Scatter(x=x, y=[y] * len(x), hovertemplate=f"{words}<extra></extra>", name=words, **look)
