"""Figures of the memory page."""

import pytest

from kvviz.charts.memory import card_figure

GIB = 2**30
PARTS = [("weights", 15 * GIB, 15 * GIB), ("CUDA context", GIB, 3 * GIB)]


@pytest.mark.parametrize(("budget", "named"), [(60, ["a card", "the engine may use"]), (80, ["a card"])])
def test_the_budget_of_an_engine_is_named_where_it_is_less_than_the_card(budget, named):
    figure = card_figure(PARTS, 80 * GIB, budget * GIB, "a card")
    assert [note.text for note in figure.layout.annotations] == named
    assert [list(bar.x) for bar in figure.data] == [[15], [1], [2]], "what is uncertain has a bar of its own"
