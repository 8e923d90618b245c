"""Draws the figures of the cost page. Work is in operations or FLOPs, with prefixes in powers of 1000."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from kvviz.charts.layout import blank

_UNITS = ((1e21, "Z"), (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""))
# Title and colour of each part, from the bottom of the stack to its top. Linear parts have cool hues and the quadratic
# part a warm one, like the cached and uncached modes elsewhere.
PARTS = {
    "linear": ("the prompt again: N P d²", "#0072B2"),
    "square": ("the new tokens again: N² d² / 2", "#D55E00"),
    "projections": ("projections", "#0072B2"),
    "mlp": ("MLP", "#56B4E9"),
    "router": ("router", "#7A6FBE"),
    "extra": ("other matrices", "#BFC7D0"),
    "mixing": ("recurrence, convolution", "#B8860B"),
    "head": ("head", "#8A94A0"),
    "cross": ("cross-attention", "#00916E"),
    "indexer": ("indexer", "#E69F00"),
    "attention": ("attention's products", "#D55E00"),
}


def scaled(most: float) -> tuple[float, str]:
    """Choose the power of 1000 that leaves the largest value at least one digit before the point, and its prefix."""
    return next((row for row in _UNITS if most >= row[0]), _UNITS[-1])


def figure_of(value: float, unit: str = "") -> str:
    """Format a number with prefix and unit; a short one shows all its digits: 1474560 -> '1,474,560', 2e12 -> '2 T'."""
    if value < 1e7 and not unit:
        return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
    size, prefix = scaled(abs(value))
    return f"{value / size:.3g} {prefix}{unit}".strip() if value < 1e24 else f"{value:.3g} {unit}".strip()


def most(parts: Mapping[str, Sequence[float]]) -> float:
    """The largest sum of the parts at one number of tokens."""
    return max((sum(column) for column in zip(*parts.values(), strict=True)), default=1)


def area_figure(
    xs: Sequence[int],
    parts: Mapping[str, Sequence[float]],
    *,
    x_title: str,
    unit: str,
    mark: tuple[int, str] | None = None,
    top: float | None = None,
) -> go.Figure:
    """Draw the parts of a cost, stacked, against the number of tokens; `mark` labels one number of tokens.

    `top`: where the axis of the cost ends, as high as the largest sum if None.
    """
    size, prefix = scaled(top or most(parts))
    said = f"{prefix}{unit}".strip()
    reach = {"yaxis_range": [0, top / size]} if top else {}
    figure = blank(x_title, said, height=340, hovermode="x unified", xaxis_range=[xs[0], xs[-1]], **reach)
    for name, values in parts.items():
        title, colour = PARTS[name]
        y, line = [value / size for value in values], {"width": 1, "color": colour}
        look = {"mode": "lines", "stackgroup": "all", "line": line, "hovertemplate": f"%{{y:.4g}} {said}"}
        figure.add_scatter(x=list(xs), y=y, name=title, **look)
    if mark is not None:
        label = {"text": mark[1], "yref": "paper", "y": 0.98, "yanchor": "top", "xanchor": "right", "textangle": -90}
        figure.add_vline(x=mark[0], line={"dash": "dot", "width": 1.5, "color": "#888888"}, annotation=label)
    return figure
