"""Figures of the memory page."""

import math

import pytest

from kvviz.charts import palette
from kvviz.charts.memory import context_figure, ideas_figure, layer_figure, sequences_figure, times
from kvviz.memory.calculator import Asked, answers

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


def test_sequences_stack_what_a_card_holds_and_say_where_it_stops_fitting():
    columns = [(1, PARTS, True), (2, PARTS, True), (3, PARTS, None), (1_000, PARTS, False)]
    figure = sequences_figure(columns, 1, 20 * GIB, 18 * GIB, "a card")
    assert [list(bar.y) for bar in figure.data] == [[15] * 4, [1] * 4, [2] * 4], "what is unsure has a bar of its own"
    assert list(figure.layout.xaxis.ticktext) == ["1<br>as asked", "2<br>fit", "3<br>perhaps", "1,000<br>no"]
    after = [(count, PARTS, fits) for count, fits in ((1, True), (2, True), (7, True), (8, False))]
    axis = sequences_figure(after, 1, 20 * GIB, 18 * GIB, "a card").layout.xaxis
    assert axis.categoryarray == axis.tickvals == ("1", "2", "…", "7", "8"), "a gap where they no longer double"
    assert axis.ticktext == ("1<br>as asked", "2<br>", "…", "7<br>fit", "8<br>no")
    assert [note.text for note in figure.layout.annotations] == ["a card: 20.0 GiB", "the engine may use 18.0 GiB"]
    assert [line.y0 for line in figure.layout.shapes] == [20, 18]
    assert len(sequences_figure(columns, 1, 20 * GIB, 20 * GIB, "a card").layout.shapes) == 1


def test_ideas_stand_under_the_model_as_it_is_and_long_bars_are_cut_off():
    ideas = [("As it is", "", 2**23, 1.0), ("MQA", "one KV head", 2**20, 0.125), ("fp8", "", 2**22, 0.5)]
    ideas.append(("MHA", "a" * 60, 2**29, 71.0))
    (bar,) = (figure := ideas_figure(ideas, palette.KEPT, 4.0)).data
    assert (list(bar.x), list(bar.y)) == ([1, 0.125, 0.5, 4.0], ["As it is", "MQA", "fp8", "MHA"])
    assert bar.meta == {"values": [1, 0.125, 0.5, 71]}
    assert bar.marker.color == (palette.REFERENCE, *[palette.KEPT] * 3)
    said = {note.text: note.x for note in figure.layout.annotations}
    assert said == {
        **{"<b>As it is</b>": 0, "<b>MQA</b>: one KV head": 0, "<b>fp8</b>": 0, "<b>MHA</b>": 0},
        **{"8.0 MiB, 1.0×": 1, "1.0 MiB, 0.13×": 0.125, "4.0 MiB, 0.50×": 0.5, "512.0 MiB, 71× (cut off)": 4},
    }


@pytest.mark.parametrize(
    ("factor", "said"), [(0.125, "0.13"), (0.5, "0.50"), (1 / 71, "0.014"), (0.28125, "0.28"), (1.0, "1.0"), (71, "71")]
)
def test_a_factor_never_loses_a_half(factor, said):
    assert times(factor) == said


@pytest.mark.parametrize(
    ("model", "height"), [("llama-3.1-8b", 128), ("mamba-130m", 128), ("gemma-3-12b", 400), ("qwen3-next-80b-a3b", 400)]
)
def test_layers_that_are_alike_stand_in_one_strip(model, height):
    (found,) = answers(Asked(models=(model,)))
    figure = layer_figure(found.memory)
    assert figure.layout.height == height and (figure.layout.showlegend is False) == (height == 128)
    if height == 128:
        (strip,) = figure.data
        ends = [start + each for start, each in zip(strip.base, strip.x, strict=True)]
        assert ends[-1] == pytest.approx(figure.layout.xaxis.range[1]) and len(ends) == len(found.memory.layers)
        assert list(strip.text) == [str(number) for number in range(len(ends))]
