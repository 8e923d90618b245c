"""Figures of the cost page: names stand where their lines and areas are, and no line lies on the axis."""

import pytest

from kvviz.charts.cost import area_figure, each_step_figure, run_figure, time_figure


def test_areas_carry_their_names_in_their_middle_and_the_cached_line_at_its_end():
    figure = area_figure([1, 2], {"linear": [1, 4], "square": [1, 8]}, x_title="x", unit="FLOP", cached=[1, 10])
    places = {label.text: label.y for label in figure.layout.annotations}
    inside = places.pop("<b>No cache</b>")
    assert places == {"the prompt,<br>each time": 2, "new tokens,<br>each time": 8, "KV cache": 10}
    assert inside == 6, "half as high as the areas there"
    assert figure.layout.showlegend is False


@pytest.mark.parametrize(("place", "side"), [(2, "left"), (90, "right")])
def test_a_mark_has_its_label_where_there_is_room(place, side):
    figure = area_figure([1, 100], {"mlp": [1, 4]}, x_title="x", unit="FLOP", marks=[(place, "here"), (50, "there")])
    (label,) = (each for each in figure.layout.annotations if each.text == "here")
    assert label.xanchor == side
    assert (label.xshift > 0) == (side == "left") and label.bgcolor, "beside its line, and over the grid"
    assert len(figure.layout.shapes) == 2
    assert figure.layout.yaxis.range[1] > 1.1 * 4, "the labels stand above the area"


def test_the_tokens_of_each_step_are_a_rectangle_and_a_triangle_whose_area_is_the_total():
    xs, prompt = range(1, 9), 4
    rectangle, triangle, cached = each_step_figure(list(xs), prompt).data
    assert sum(rectangle.y) + sum(triangle.y) == sum(prompt + n - 1 for n in xs)
    assert (set(rectangle.y), max(triangle.y)) == ({prompt}, len(xs) - 1)
    assert sum(cached.y) == prompt + len(xs) - 1


def test_a_least_time_is_a_bar_of_its_pieces_with_the_seconds_where_they_have_room():
    spent = {
        "uncached": {"arithmetic": 8.0, "weights": 1.5, "rest": 0.1},
        "cached": {"arithmetic": 0.0, "weights": 4.5, "rest": 0.1},
    }
    figure = time_figure(spent, ["9.6 s", "4.6 s"])
    assert [tuple(bar.x) for bar in figure.data] == [(8.0, 0.0), (1.5, 4.5), (0.1, 0.1)]
    assert [tuple(bar.text) for bar in figure.data] == [("8 s", ""), ("1.5 s", "4.5 s"), ("", "")]
    assert [(label.text, label.x) for label in figure.layout.annotations] == [
        ("<b>9.6 s</b>", pytest.approx(9.6)),
        ("<b>4.6 s</b>", pytest.approx(4.6)),
    ]
    short = {mode: {piece: s / 1e3 for piece, s in pieces.items()} for mode, pieces in spent.items()}
    assert time_figure(short, ["9.6 ms", "4.6 ms"]).data[1].x == pytest.approx((1.5, 4.5))


@pytest.mark.parametrize("tokens", [1, 3])
def test_a_runs_sums_stand_at_its_lines_in_one_unit(tokens):
    work = {"uncached": [1e12, 5e14, 4.2896e15][-tokens:], "cached": [1e12, 9e12, 18.8e12][-tokens:]}
    figure = run_figure(range(1, tokens + 1), work)
    assert {label.text for label in figure.layout.annotations} == {
        "No cache,<br>4,290 TFLOP",
        "KV cache,<br>18.8 TFLOP",
    }
    finer = run_figure(range(1, tokens + 1), work, 4)
    assert "No cache,<br>4,290 TFLOP" in {label.text for label in finer.layout.annotations}
    assert [line.y[-1] for line in figure.data] == pytest.approx([4289.6, 18.8])
    assert {line.mode for line in figure.data} == {"markers" if tokens == 1 else "lines"}, "one point is no line"
