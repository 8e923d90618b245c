"""A request's bars tell of all its time, once."""

from itertools import pairwise

from kvviz.charts.gantt import Bar, bars, gantt_figure
from kvviz.ui.shared.experiment import recording

ROW = {
    "number": 4,
    "state": "done",
    "arrival_s": 1.0,
    "admitted_s": [2.0, 7.0],
    "chunks": [[2.0, 2.5, 0, 16], [2.5, 3.0, 16, 9], [7.0, 8.0, 0, 27]],
    "preempted_s": [5.0],
    "ended_s": 9.0,
}


def test_bars_follow_one_another_from_the_arrival_to_the_end():
    found = list(bars(ROW))
    assert found == [
        Bar("waiting", 1.0, 2.0),
        Bar("prefill", 2.0, 3.0),
        Bar("decode", 3.0, 5.0),
        Bar("preempted", 5.0, 7.0),
        Bar("prefill", 7.0, 8.0),
        Bar("decode", 8.0, 9.0),
    ]
    assert all(earlier.ended == later.began for earlier, later in pairwise(found))


def test_a_panel_for_each_policy_on_one_axis_without_what_was_refused():
    refused = {**ROW, "number": 5, "state": "refused"}
    policies = [
        {"title": title, "seconds": 8.0, "clean": False, "each": [ROW, refused]} for title in ("One", "Two <b>")
    ]
    figure = gantt_figure(policies)
    assert {number for bar in figure.data for number in bar.y} == {4}
    assert sum(span for bar in figure.data[:4] for span in bar.x) == 8.0
    assert "Two &lt;b&gt;</b>: ≈ 8 s" in figure.layout.annotations[1].text


def test_the_first_panel_names_its_colours_where_nothing_else_is_drawn():
    rows = recording("batching")["document"]["rows"]
    words = gantt_figure(rows).layout.annotations[len(rows) :]
    assert {word.text for word in words} == {"waiting", "prefill", "decode"} and {word.yref for word in words} == {"y"}
    drawn = [(row["number"], bar) for row in rows[0]["each"] for bar in bars(row)]
    for word in words:
        assert not any(number == word.y and bar.began < word.x < bar.ended for number, bar in drawn)
