"""Figures of the memory page."""

import pytest

from kvviz.charts.memory import card_figure, context_figure

GIB = 2**30
PARTS = [("weights", 15 * GIB, 15 * GIB), ("CUDA context", GIB, 3 * GIB)]


def test_a_line_is_dashed_beyond_the_longest_context_that_its_model_was_made_for():
    short, beyond, long = context_figure([("A", [1, 4, 8], [1, 4, 8], 4), ("B", [1, 4, 8], [2, 8, 16], None)], 8).data
    assert list(short.x) == [1, 4] and list(beyond.x) == list(long.x) == [1, 4, 8]
    assert (short.line.dash, beyond.line.dash, long.line.dash) == ("solid", "dash", "solid")
    assert [line.name for line in (beyond, long)] == ["A<br>made for 4", "B"]


@pytest.mark.parametrize(("budget", "named"), [(60, ["a card", "the engine may use"]), (80, ["a card"])])
def test_the_budget_of_an_engine_is_named_where_it_is_less_than_the_card(budget, named):
    figure = card_figure(PARTS, 80 * GIB, budget * GIB, "a card")
    assert [note.text for note in figure.layout.annotations] == named
    assert [list(bar.x) for bar in figure.data] == [[15], [1], [2]], "what is uncertain has a bar of its own"
