"""Steps with returns from a preemption: each at the tokens that came back and the time that they took."""

from kvviz.charts.serving import returns_figure
from kvviz.experiments.batching.timeline import Return


def test_each_step_stands_at_its_tokens_and_its_time_and_is_hollow_beside_a_new_prompt():
    again = [Return(1, 80, 0.001, True), Return(2, 190, 0.004, False), Return(2, 180, 0.006, False)]
    figure = returns_figure({"again": (again, "#111111"), "back": ([Return(1, 100, -0.0005, False)], "#222222")})
    first, second = figure.data
    assert list(first.x) == [80, 95, 90] and list(first.y) == [1, 2, 3] and list(second.y) == [-0.5]
    assert list(first.marker.symbol) == ["circle-open", "circle", "circle"]
    names = {each.text: each.y for each in figure.layout.annotations}
    assert names == {"again": 2.5, "back": -0.5, "0: a step without a return": -0.5}, "a name stands at the most tokens"
    assert figure.layout.yaxis.range[0] < -0.5 and figure.layout.yaxis.range[1] > 3
