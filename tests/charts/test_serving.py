"""Steps with returns from a preemption: each is seen, those of one time beside one another."""

from kvviz.charts.serving import ASIDE, WIDEST, returns_figure


def test_returns_that_took_equally_long_are_seen_beside_one_another():
    figure = returns_figure({"again": ([0.02, 0.02, 0.0201, 0.04], [], "#111111"), "back": ([0.01], [], "#222222")})
    again, back = figure.data
    assert list(again.x) == [20, 20, 20.1, 40] and list(again.y) == [-ASIDE, 0, ASIDE, 0] and list(back.y) == [1]
    said = [each.text for each in figure.layout.annotations]
    assert said == ["<b>20 to 40 ms</b> (4 steps)", "<b>10 ms</b> (1 step)"]
    two = returns_figure({"again": ([0.02, 0.02], [], "#111111"), "back": ([0.01, 0.01], [], "#222222")}).data
    assert list(two[0].y) == [-ASIDE / 2, ASIDE / 2] and list(two[1].y) == [1 - ASIDE / 2, 1 + ASIDE / 2]
    assert list(figure.layout.yaxis.ticktext) == ["again", "back"] and list(figure.layout.yaxis.tickvals) == [0, 1]
    crowd = returns_figure({"again": ([0.02] * 9, [], "#111111"), "back": ([0.01], [], "#222222")}).data[0]
    assert len(set(crowd.y)) == 9 and max(crowd.y) == -min(crowd.y) < WIDEST / 2
    many = returns_figure({"again": ([0.02] * 10, [], "#111111"), "back": ([0.01], [], "#222222")})
    assert [each.text for each in many.layout.annotations] == [
        "|",
        "<b>20 ms in the median</b> (10 steps)",
        "<b>10 ms</b> (1 step)",
    ]


def test_returns_that_do_not_count_are_hollow_and_not_counted():
    figure = returns_figure({"again": ([0.01], [0.03, 0.05], "#111111"), "back": ([0.02], [], "#222222")})
    assert list(figure.data[0].marker.symbol) == ["circle", "circle-open", "circle-open"]
    assert list(figure.data[0].x) == [10, 30, 50]
    assert [each.text for each in figure.layout.annotations] == ["<b>10 ms</b> (1 step)", "<b>20 ms</b> (1 step)"]
