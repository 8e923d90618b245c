"""Figures of the cost page: names stand where their lines and areas are, and no line lies on the axis."""

import pytest

from kvviz.charts.cost import area_figure, steps_figure


def test_areas_carry_their_names_in_their_middle_and_the_cached_line_at_its_end():
    figure = area_figure([1, 2], {"linear": [1, 4], "square": [1, 8]}, x_title="x", unit="FLOP", cached=[1, 10])
    places = {label.text: label.y for label in figure.layout.annotations}
    assert places == {"the prompt,<br>each time": 2, "new tokens,<br>each time": 8, "with the cache": 10}
    assert figure.layout.showlegend is False


@pytest.mark.parametrize(("place", "side"), [(2, "left"), (90, "right")])
def test_a_mark_has_its_label_where_there_is_room(place, side):
    figure = steps_figure([1, 50, 100], {"uncached": [1, 1e6, 1e8], "cached": [1, 10, 100]}, mark=(place, "here"))
    (label,) = (each for each in figure.layout.annotations if each.text == "here")
    assert label.xanchor == side
    assert figure.layout.yaxis.type == "log", "a step with the cache is a millionth here, and has its line"
