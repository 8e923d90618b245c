"""Lines that carry their names at their ends: where they do, and that no two names stand over one another."""

import plotly.graph_objects as go
import pytest

from kvviz.charts.layout import APART, blank, name_ends


def lines(*ends, **layout):
    figure = blank("x", "y", height=400, **layout)
    for number, end in enumerate(ends):
        figure.add_scatter(x=[1, 2, 4], y=[1, 1, end], name=f"line {number}", line={"color": "#0072B2"})
    return figure


def test_names_stand_at_the_ends_and_apart():
    figure = name_ends(lines(10, 10, 3))
    places = {label.text: (label.x, label.y, label.yshift) for label in figure.layout.annotations}
    assert places["line 2"] == (1, 3, pytest.approx(0)), "at the right edge, where the line ends"
    shifts = [places[name][2] for name in ("line 0", "line 1")]
    assert shifts == pytest.approx([-APART * 160, APART * 160]), "two at one height give way by half each"
    assert figure.layout.showlegend is False and figure.layout.xaxis.range == pytest.approx((1, 4), abs=0.05)


def test_on_logarithmic_axes_places_are_logarithms():
    figure = name_ends(lines(100, 10, xaxis_type="log", yaxis_type="log"))
    assert {label.y for label in figure.layout.annotations} == {1, 2}
    assert figure.layout.xaxis.range == pytest.approx((0, 0.602), abs=0.01)


@pytest.mark.parametrize("ends", [range(1, 8), ()])
def test_many_lines_and_none_keep_the_legend(ends):
    assert name_ends(lines(*ends)).layout.annotations == ()


def test_lines_that_end_apart_or_have_long_names_keep_the_legend():
    apart = lines(3).add_scatter(x=[1, 2], y=[1, 2], name="shorter")
    assert name_ends(apart).layout.annotations == ()
    assert name_ends(go.Figure(go.Scatter(x=[1], y=[1], name="n" * 40))).layout.annotations == ()
