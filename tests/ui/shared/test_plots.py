"""A figure is built once for all who see it with the same numbers."""

import json

from streamlit.testing.v1 import AppTest

from kvviz.charts import palette
from kvviz.charts.layout import blank
from kvviz.ui.shared.plots import drawn_once

BUILT = []


def figure(values, colour=palette.KEPT):
    BUILT.append(values)
    return blank("x", "y", height=300).add_scatter(x=[1, 2], y=values, line_color=colour)


def test_equal_arguments_build_a_figure_once_and_others_another(monkeypatch):
    monkeypatch.setattr("kvviz.ui.shared.plots._dark", lambda: False)
    first, again, other = drawn_once(figure, [1, 2]), drawn_once(figure, [1, 2]), drawn_once(figure, [1, 3])
    assert BUILT == [[1, 2], [1, 3]] and first == again != other
    assert json.loads(other.figure)["data"][0]["y"] == [1, 3] and other.height == 300
    monkeypatch.setattr("kvviz.ui.shared.plots._dark", lambda: True)
    on_dark = json.loads(drawn_once(figure, [1, 2]).figure)
    assert on_dark["data"][0]["line"]["color"] == palette.ON_DARK[palette.KEPT], "a dark page has its own colours"
    assert drawn_once(figure, [1, 2], colour="#000000") != first


def test_a_page_that_is_drawn_again_builds_no_figure_again():
    def page():
        from kvviz.ui.shared.plots import drawn_once, plot
        from tests.ui.shared.test_plots import figure

        plot(drawn_once(figure, [7, 8]), key="one")

    app = AppTest.from_function(page).run().run()
    assert not app.exception and BUILT.count([7, 8]) == 1
    (chart,) = app.get("bidi_component")
    assert json.loads(json.loads(chart.proto.json)["figure"])["data"][0]["y"] == [7, 8]
