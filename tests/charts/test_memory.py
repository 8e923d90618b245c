"""Figures of the memory page."""

import math

import pytest

from kvviz.charts import palette
from kvviz.charts.memory import card_figure, context_figure

GIB = 2**30
PARTS = [("weights", 15 * GIB, 15 * GIB), ("CUDA context", GIB, 3 * GIB)]


LINES = [("A", [1, 4, 8], [100, 400, 800], 4, 600), ("B", [1, 4, 8], [200, 800, 1000], None, 900)]


def test_the_first_model_is_thick_and_in_colour_and_dashed_beyond_what_it_was_made_for():
    short, beyond, there, other, marked = context_figure(LINES, 6).data
    assert list(short.x) == [1, 4] and list(beyond.x) == list(other.x) == [1, 4, 8]
    assert (short.line.dash, beyond.line.dash, other.line.dash) == (None, "dash", None)
    assert (beyond.line.width, beyond.line.color) == (4, palette.KEPT)
    assert (other.line.width, other.line.color) == (1.5, palette.REFERENCE)
    assert (list(there.x), list(there.y), there.marker.symbol) == ([6], [600], "circle-open")
    assert (list(marked.x), list(marked.y), marked.marker.symbol) == ([6], [900], "circle")


@pytest.mark.parametrize("log", [False, True])
def test_each_dot_has_its_bytes_and_each_bend_what_the_model_was_made_for(log):
    figure = context_figure(LINES, 6, log=log)
    at, bend = (math.log10(6), math.log10(4)) if log else (6, 4)
    assert {note.text: note.x for note in figure.layout.annotations if note.text not in "AB"} == {
        "6 tokens": at, "600 B": at, "900 B": at, "made for 4": bend
    }  # fmt: skip


def test_of_more_models_than_have_names_at_their_ends_the_first_alone_has_words():
    figure = context_figure([(f"model {n}", *LINES[0][1:]) for n in range(6)], 6)
    assert [note.text for note in figure.layout.annotations] == ["6 tokens", "600 B", "made for 4"]
    assert len({line.line.color for line in figure.data if line.showlegend is None}) == 6, "a legend tells them apart"


@pytest.mark.parametrize(("budget", "named"), [(60, ["a card", "the engine may use"]), (80, ["a card"])])
def test_the_budget_of_an_engine_is_named_where_it_is_less_than_the_card(budget, named):
    figure = card_figure(PARTS, 80 * GIB, budget * GIB, "a card")
    assert [note.text for note in figure.layout.annotations] == named
    assert [list(bar.x) for bar in figure.data] == [[15], [1], [2]], "what is uncertain has a bar of its own"
