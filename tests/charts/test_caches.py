"""What a lossy cache saves is drawn from its mark to the full cache, and said at the mark; no line crosses words."""

import pytest

from kvviz.charts import palette
from kvviz.charts.caches import HELD, held_figures, moves_figures, quality_figure


def run(mode, kl, nbytes):
    return {"mode": mode, "title": mode, "quality": {"kl": [kl], "nbytes": nbytes, "perplexity": 2.0}}


@pytest.mark.parametrize(
    ("others", "lines", "words"),
    [
        ([], [], []),
        ([("int4", 1e-5, 300_000), ("sinks", 1e-2, 500_000)], [1e-5, 1e-2], ["saves 70%", "saves 50%"]),
        ([("int4", 1e-5, 300_000), ("int8", 1.1e-5, 500_000)], [1e-5, 1.1e-5], ["saves 70%", "saves 50%"]),
        ([("int4", 1e-5, 1_000_000)], [], []),
    ],
)
def test_what_a_lossy_cache_saves_is_a_line_to_the_full_cache(others, lines, words):
    figure = quality_figure([run("cached", 0.0, 1_000_000), *(run(*other) for other in others)])
    level = [shape for shape in figure.layout.shapes if shape.type == "line" and shape.y0 == shape.y1]
    assert [shape.y0 for shape in level] == lines
    notes = figure.layout.annotations
    said = {note.x: note.text.split("<b>")[-1].removesuffix("</b>") for note in notes if "saves" in note.text}
    assert list(said.values()) == words
    assert set(said) <= {shape.x0 for shape in level}, "the share stands at the mark, where its line begins"
    struck = [note.text for note in notes if note.text != "cached" and note.bgcolor != palette.PAPER]
    assert not struck and not figure.layout.yaxis.showgrid, "no line is drawn through words"
    ends = {data.name: data.x[0] for data in figure.data}
    assert {shape.x1 for shape in level} <= {ends["cached"]}
    assert len({(data.marker.symbol, data.marker.color) for data in figure.data}) == 1, "a name tells them apart"


def test_a_count_that_was_taken_over_is_hatched():
    row = {"step_s": [1e-3] * 5, "held": 1, "copied": 1_000, "gathered": 0}
    figures = moves_figures([{**row, "mode": mode, "title": mode} for mode in ("cached", "concat")])
    for bars in (figures[0].data[0], figures[1].data[0]):
        assert dict(zip(bars.y, bars.marker.pattern.shape, strict=True)) == {"cached": "/", "concat": ""}


def test_bytes_and_time_stand_in_the_same_rows_and_on_a_narrow_screen_below_one_another():
    row = {"step_s": [9.0, 1e-3, 2e-3, 3e-3], "held": 1, "copied": 2_048, "gathered": 0}
    both, moved, took = moves_figures([{**row, "mode": mode, "title": mode} for mode in ("cached", "concat")])
    named = [[data.name for data in figure.data if data.name] for figure in (both, moved, took)]
    assert named[0] == [*named[1], *named[2]] and named[2] == ["median step (ms)"]
    assert {data.y for data in both.data} == {("concat", "cached")}, "the first stands on top"
    assert {data.yaxis for data in both.data} == {None} and both.layout.yaxis.showgrid
    assert [axis.domain for axis in both.select_xaxes()] == [(0, 0.5), (0.5, 1)]
    steps = both.data[2]
    assert steps.x == pytest.approx([2.0, 2.0]), "the first step is the prefill's"
    assert steps.error_x.array == steps.error_x.arrayminus == pytest.approx([1.0, 1.0])
    words = [[note.text for note in figure.layout.annotations] for figure in (both, moved, took)]
    assert words[0] == [*words[1], *words[2]]
    assert words[0][0].startswith("<b>bytes at the last step, KiB</b>") and words[0][1:3] == ["2", "2"]
    assert words[2][0].startswith("<b>time of a step, ms</b>") and words[2][1:] == ["2.0", "2.0"]


def test_the_unit_of_the_panels_stands_at_the_axis_of_a_row_and_in_the_names_of_the_parts():
    row = {"quality": {}, "title": "A", "empty_share": 0.5, "most_wasted": 1_024, "cache_bytes": [1_024] * 2}
    figures = held_figures([{**row, "allocated_bytes": [2_048] * 2}] * 4)
    assert {trace.name for figure in figures for trace in figure.data} == {f"{name} (KiB)" for name, _ in HELD}
    axes = [axis for figure in figures for axis in figure.select_yaxes()]
    assert [axis.showticklabels for axis in axes] == [True, False] * 2 and axes[0].ticktext[-1] == "2 KiB"
    ends = [note.text for figure in figures for note in figure.layout.annotations if not note.text.startswith("<b>")]
    assert ends == ["holds 1 KiB"] * 4
    assert figures[0].data[1].y == (1.0, 1.0)


def test_a_gloss_stands_under_the_name_of_a_design_in_the_charts():
    row = {
        "title": "A",
        "gloss": "does <b>x</b>",
        "mode": "sinks",
        "quality": {"kl": [1e-2], "nbytes": 1, "perplexity": 2.0},
    }
    row |= {"empty_share": 0.0, "most_wasted": 0, "cache_bytes": [1], "allocated_bytes": [1]}
    row |= {"step_s": [1e-3] * 5, "held": 1, "copied": 1, "gathered": 0}
    (panels,), (written, *_) = held_figures([row]), moves_figures([row])
    lost = quality_figure(
        [
            row,
            {
                **row,
                "mode": "cached",
                "title": "B",
                "gloss": "",
                "quality": {"kl": [0.0], "nbytes": 2, "perplexity": 2.0},
            },
        ]
    )
    for words in (panels.layout.annotations[0].text, written.layout.yaxis.ticktext[0]):
        assert words.startswith(("A  <br><span", "<b>A</b><br><span")) and "does &lt;b&gt;x" in words
    assert "A<br><span" in "".join(note.text for note in lost.layout.annotations)
    assert written.data[0].y == ("A",), "the data have the plain name"
